"""Turns: which thread of a handler looks for messages, and when it sleeps.

The threads of one handler take turns at looking. The thread that has the turn takes a batch from the next queue that
has one, gives the turn away and handles the batch itself, while another thread looks. So no message changes threads
between wake-up and handler. A thread that finds nothing keeps the turn and sleeps on the bell of its member.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from operator import length_hint
from typing import Any, Generic, TypeAlias, TypeVar

from rmqclient.backend.bells import ArrivalBell
from rmqclient.delivery.calls import Calls
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.message import ReceivedMessage
from rmqclient.store import LONGEST_SLEEP_S, clock
from rmqclient.store.log.record import reason
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_KEPT_S = 0.005
"""A call that lasts longer keeps its thread from the rest of its batch."""

Queue = TypeVar("Queue", bound=ProcessQueue)

Taken: TypeAlias = tuple[Queue, list[ReceivedMessage]]
"""A batch, and the queue that it comes from."""


class Relief:
    """Finds messages that another thread has taken, and cannot begin because it is kept by one of the same batch."""

    look_every_s = _KEPT_S
    """How often to look while :attr:`is_possible` is true."""

    def __init__(self, calls: Sequence[Calls]) -> None:
        self._calls = calls

    def take(self) -> Taken[Any] | None:
        """Return one such message; None if no thread is kept just now."""
        for calls in self._calls:
            if calls.kept_s >= _KEPT_S and (message := calls.relieve()) is not None:
                return calls.queue, [message]
        return None

    @property
    def is_possible(self) -> bool:
        """Whether a thread has messages that it has not begun, so that :meth:`take` may soon find one."""
        return any(length_hint(calls.unfinished) for calls in self._calls)


class Turns(Generic[Queue]):
    """The queues of one handler, and the turn of the thread that looks at them."""

    def __init__(self, bell: ArrivalBell, relief: Relief | None = None) -> None:
        self.queues: tuple[Queue, ...] = ()
        """The queues that are looked at. Change it with :meth:`look_at`."""
        self.stopping = False
        """Set by :meth:`stop`: no further message is begun."""
        self.held = False
        """Set by :meth:`hold` and :meth:`stand_aside`: nothing is taken just now."""
        self._held_for_good = False
        self._aside_until = 0.0
        self._bell = bell
        self._relief = relief
        self._turn = threading.Lock()
        self._handed: deque[tuple[Queue, ReceivedMessage]] = deque()
        self._next = 0

    def look_at(self, queues: tuple[Queue, ...]) -> None:
        """Look at these queues from now on."""
        self.queues = queues
        self.wake()

    def hand(self, queue: Queue, message: ReceivedMessage) -> None:
        """Make the next thread that looks find this message, which was taken from ``queue`` for another handler."""
        self._handed.append((queue, message))
        self.wake()

    def stop(self) -> None:
        """Make :meth:`take` return None from now on, also to a thread that sleeps."""
        self.stopping = True
        self.wake()

    def hold(self) -> None:
        """Take nothing until :meth:`resume`; batches that were taken go on."""
        self.held = self._held_for_good = True

    def resume(self) -> None:
        """Take messages again."""
        self._held_for_good = False
        self._hold_or_not()

    def stand_aside(self, until: float) -> None:
        """Take nothing until this time of ``time.monotonic``; 0 ends that."""
        self._aside_until = until
        self._hold_or_not()

    def _hold_or_not(self) -> None:
        self.held = self._held_for_good or self._aside_until > time.monotonic()
        self.wake()

    @property
    def has_handed(self) -> bool:
        """Whether a message waits that another delivery has handed over."""
        return bool(self._handed)

    def wait_while_held(self) -> bool:
        """Sleep for a while if nothing is to be taken just now; tell whether that is so."""
        heard = self._bell.heard()
        if self._aside_until and not self._held_for_good and self._aside_until <= time.monotonic():
            self.held = False
        if self.held and not self.stopping:
            self._bell.wait(heard, LONGEST_SLEEP_S)
        return self.held

    def wake(self) -> None:
        """Make a sleeping thread look again."""
        self._bell.ring()

    def take(self) -> Taken[Queue] | None:
        """Wait for the turn and return the next batch; sleeps until there is one. None after :meth:`stop`."""
        with self._turn:
            while not self.stopping:
                if self.held and self.wait_while_held():
                    continue
                if self._handed:
                    queue, message = self._handed.popleft()
                    return queue, [message]
                queues = self.queues
                taken = self.next_batch(queues)
                if taken is None and self._relief is not None:
                    taken = self._relief.take()
                if taken is not None:
                    return taken
                self.sleep(queues)
        return None

    def next_batch(self, queues: tuple[Queue, ...]) -> Taken[Queue] | None:
        """Take a batch from the first queue that has one, beginning behind the queue of the last batch."""
        for step in range(len(queues)):
            queue = queues[(self._next + step) % len(queues)]
            batch = queue.take()
            if queue.grant.damaged:
                _report_damaged(queue)
            if batch:
                self._next += step + 1
                return queue, batch
        return None

    def sleep(self, queues: tuple[Queue, ...]) -> None:
        """Sleep until a message comes to these queues, one of them is due, or :meth:`wake` is called."""
        heard = self._bell.heard()  # before the looks below: a ring from here on ends the wait
        if queues is not self.queues or self._handed or self.stopping:
            return
        pause_s = LONGEST_SLEEP_S
        if self._relief is not None and self._relief.is_possible:
            pause_s = self._relief.look_every_s
        for queue in queues:
            due = queue.next_due()
            if due is not None:
                pause_s = min(pause_s, clock.real_s(due - clock.elapsed()))
            if not queue.revoked and not queue.is_blocked and queue.grant.arm(self._bell.lane):
                return
        self._bell.wait(heard, pause_s)


def _report_damaged(queue: ProcessQueue) -> None:
    """Log the messages that a take stepped over because their records are damaged."""
    for queue_offset, commit_log_offset, found in queue.grant.damaged:
        _log.error(
            "%s, queue %d, offset %d: the record at %d of the commit log is damaged (%s); it was stepped over",
            queue.queue.topic, queue.queue.queue_id, queue_offset, commit_log_offset, reason(found),
        )  # fmt: skip
    queue.grant.damaged.clear()
