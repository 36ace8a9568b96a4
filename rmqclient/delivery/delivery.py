"""Delivery: the handler threads that take batches; the base class of the delivery modes.

=============================================  ========================================================
mode                                           what the handler gets
=============================================  ========================================================
:mod:`rmqclient.delivery.modes.concurrent`     messages of a queue out of order and side by side
:mod:`rmqclient.delivery.modes.batch`          the same, many messages in one call
:mod:`rmqclient.delivery.modes.orderly`        one message of a queue after the other
:mod:`rmqclient.delivery.modes.key_ordered`    one message of a sharding key after the other
=============================================  ========================================================
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple

from rmqclient.backend.backend import Backend
from rmqclient.backend.group_protocols import Death, Grant, Membership
from rmqclient.calling.answers import answering
from rmqclient.calling.current import Current
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.delivery.acknowledging import Acknowledger
from rmqclient.delivery.caller import Callers
from rmqclient.delivery.calls import Calls, Counters
from rmqclient.delivery.runner import Runner
from rmqclient.delivery.turns import Queue, Relief, Turns
from rmqclient.handler import Handler
from rmqclient.message import ReceivedMessage
from rmqclient.sending.reply import Replier
from rmqclient.steps.steps_factory import StepsFactory
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.tracing.incoming import observed
from rmqclient.tracing.observers import Observer

_BETWEEN_S = 1.0
"""A thread that began a call so long ago, and has begun no other one since, is in it."""


class Parts(NamedTuple):
    """What the delivery of one handler is made of."""

    backend: Backend
    handler: Handler
    membership: Membership
    config: ConsumerConfig
    callers: Callers


class Delivery(ABC, Generic[Queue]):
    """The threads of one handler in one process."""

    queue_type: type[Queue]
    """The process queue of the mode."""

    in_coroutines = False
    """Whether the calls of an ``async`` handler are awaited in the event loop; otherwise a thread waits for each."""

    keeps_order = False
    """Whether a queue goes to another member only when no handler runs with a message of it, without a time limit."""

    def __init__(self, parts: Parts) -> None:
        backend, handler, membership, config, callers = parts
        self._handler = handler
        self._membership = membership
        self._config = config
        self._callers = callers
        self._steps_factory = StepsFactory(backend, handler)
        call = callers.of(handler)
        self._call = answering(Replier(backend), handler, call) if handler.replies else call
        self._calls = [Calls() for _ in range(self._call_count(handler))]
        self._threads = self._make_threads()
        self.counters = Counters()
        """What went wrong so far."""
        self._turns: Turns[Queue] = Turns(membership.bell, self._relief())
        self._acknowledger = Acknowledger(handler.group, self._turns, self.counters)
        self._runner = Runner(self._turns, self._acknowledger)
        self._suspects = callers.suspects
        self._suspects.add(self)

    @property
    def topic(self) -> str:
        """The topic of the handler."""
        return self._handler.topic

    @property
    def running(self) -> int:
        """Messages whose handler runs now."""
        return sum(calls.running for calls in self._calls)

    @property
    def is_here(self) -> bool:
        """Whether one of its threads is the one that asks."""
        return threading.current_thread() in self._threads

    @property
    def handled(self) -> int:
        """Messages that the handler finished and that were acknowledged."""
        return sum(calls.handled for calls in self._calls)

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The queues of the handler's own topic that messages are delivered from."""
        return self._turns.queues

    def observe(self, observers: Sequence[Observer]) -> None:
        """Let observers see each call of the handler; before :meth:`start`."""
        self._call = observed(self._handler, self._call, observers, self._messages_of)

    def start(self) -> None:
        """Begin to deliver. Raises TableFull, StoreBusy."""
        if not self.in_coroutines:
            self._call = self._callers.waiting(self._handler, self._call)
        for calls, slot in zip(self._calls, self._membership.claim(len(self._calls)), strict=True):
            calls.running_slot = slot
            calls.current = Current(self._handler.group, self._steps_factory)
            calls.current.running = calls.running_slot
        for thread in self._threads:
            thread.start()

    def add_up(self) -> None:
        """Let others see how long the calls of the handler took; after :meth:`start`."""
        for calls in self._calls:
            calls.running_slot.add_up()

    def make_queue(self, grant: Grant, deaths: Mapping[int, Sequence[Death]]) -> Queue:
        """Return the process queue of this mode for a grant; ``deaths`` as :attr:`ProcessQueue.deaths`."""
        return self.queue_type(grant, self._config, deaths, self._handler.batch)

    def set_queues(self, queues: tuple[Queue, ...]) -> None:
        """Deliver from these queues from now on."""
        self._turns.look_at(queues)

    def hold(self) -> None:
        """Take no message until :meth:`resume`; batches that were taken go on."""
        self._turns.hold()

    def resume(self) -> None:
        """Take messages again."""
        self._turns.resume()

    def stand_aside(self, until: float) -> None:
        """Take nothing until this time of ``time.monotonic``, beside a suspect; 0 ends that."""
        self._turns.stand_aside(until)

    def is_idle(self) -> bool:
        """Tell whether there is nothing to do until a message comes, or the time of one that is held back.

        By words that other threads change: true twice in a row means that it is so.
        """
        queues = self._turns.queues
        return not (self._turns.has_handed or self.running) and all(queue.is_idle() for queue in queues)

    def wake(self) -> None:
        """Make a sleeping thread look again."""
        self._turns.wake()

    def stop_taking(self) -> None:
        """Begin no further message; running ones go on."""
        self._turns.stop()

    def join(self, timeout_s: float) -> int:
        """Wait for the running handlers; return how many still run when the time is up."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return self.running if any(thread.is_alive() for thread in self._threads) else 0

    def forgive(self) -> None:
        """Count no attempt of what runs if this process dies, because it ends; behind :meth:`stop_taking`."""
        for calls in self._calls:
            calls.forgive()

    def is_handling(self, queue: Queue) -> bool:
        """Tell whether a handler runs, or is about to run, with a message of this queue."""
        return queue.running > 0

    def is_between(self, queue: Queue) -> bool:
        """Tell whether a thread may be about to begin a message of a revoked queue that nobody could know of."""
        return any(
            calls.running and calls.kept_s < _BETWEEN_S and queue.grant.is_between(calls.running_slot)
            for calls in self._calls
        )

    @property
    def kept_s(self) -> float:
        """For how many seconds every thread has been kept by one call, as far as looks at it have seen."""
        return min(calls.kept_s for calls in self._calls)

    def has_waiting(self, queues: Iterable[Queue]) -> bool:
        """Tell whether these queues have messages that could begin if a thread were free."""
        return any(queue.has_waiting for queue in queues)

    def longest_running_since(self, now: int) -> int:
        """Return since when the handler call that runs longest has been seen running, 0 when no call runs.

        ``now`` is CLOCK_BOOTTIME in ns; :meth:`rmqclient.delivery.calls.Calls.running_since` says how exact that is.
        """
        return min((since for calls in self._calls if (since := calls.running_since(now))), default=0)

    def _messages_of(self, given: Any) -> Sequence[ReceivedMessage]:
        """Return the messages of what the handler is called with."""
        return (given,) if self._handler.batch is None else list(given)

    def _call_count(self, handler: Handler) -> int:
        """Return how many calls run at the same time."""
        return handler.threads

    def _make_threads(self) -> list[threading.Thread]:
        """Return the threads that :meth:`start` starts."""
        return [
            GuardedThread(target=self._run, args=(calls,), name=f"rmq-{self._handler.group}-{number}")
            for number, calls in enumerate(self._calls)
        ]

    def _relief(self) -> Relief | None:
        """Return what finds work in the batches of other threads, if the mode allows that."""
        return None

    def _run(self, calls: Calls) -> None:
        calls.current.enter()
        self._serve(calls)
        calls.running_slot.release()  # a thread that is lost keeps it: its message counts the end of the process

    @abstractmethod
    def _serve(self, calls: Calls) -> None:
        """Take batches in one thread until :meth:`stop_taking`, and let the runner handle them."""
