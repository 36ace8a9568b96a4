"""Orderly delivery: the messages of a queue one after the other, in the order of the queue.

Different queues run side by side in the threads of the handler. The thread that has messages of a queue claims it.

==============  ==========================================================================================
handler         then
==============  ==========================================================================================
returns         the message is acknowledged, and the next one is begun
raises          the queue is suspended, then the same message comes again: :mod:`rmqclient.delivery.suspension`
==============  ==========================================================================================

The order is kept through a rebalance, a crash and a restart. Ahead of the message that runs, only messages that a
filter passes over are acknowledged. So a new owner begins at the committed offset, with the message that was not
finished. A member becomes the new owner when the handler of the old owner has returned, when the old process is dead,
or when its lease has run out. A process that was stopped past its lease and wakes up inside its handler goes on there,
beside the new owner: its acknowledgement is refused, and so is the beginning of its next message.

A delivery attempt is counted in shared memory before the handler runs, under the mutex of the group-queue and with the
epoch of the grant (``held_offset`` and ``held_attempts``). So the count goes on when the owner changes, also for a
message that kills its process, as long as the machine runs. RocketMQ counts in the client, and from 0 again.

A batch (``batch=100``) is a run of consecutive messages of one queue. Its attempt is that of its first message. The
batch comes again as a whole, and becomes dead letters as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from rmqclient.backend.group_protocols import Death, Grant
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.delivery.calls import Calls
from rmqclient.delivery.delivery import Delivery, Parts
from rmqclient.delivery.modes.gathering import Gathering
from rmqclient.delivery.process_queue import FlowControl, ProcessQueue
from rmqclient.delivery.runner import Disposition, Hold
from rmqclient.delivery.suspension import Suspension
from rmqclient.failures.retry import Retries
from rmqclient.handler import Batch
from rmqclient.message import ReceivedMessage
from rmqclient.store import clock
from rmqclient.store.errors import StoreBusy
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class OrderlyQueue(ProcessQueue):
    """One granted queue, and the messages of it that wait because the first of them failed."""

    def __init__(
        self,
        grant: Grant,
        config: ConsumerConfig,
        deaths: Mapping[int, Sequence[Death]] | None = None,
        batch: Batch | None = None,
    ) -> None:
        super().__init__(grant, config, deaths, batch)
        self.claimed = False
        """Whether a thread has messages of the queue: no other thread takes until that one has finished."""
        self._size = 1 if batch is None else batch.size
        self._gathering = Gathering(self, 0.0 if batch is None else batch.linger_s)
        self._suspended: list[ReceivedMessage] = []
        self._suspended_until = 0.0

    @property
    def is_blocked(self) -> bool:
        """Whether a thread has claimed the queue, or the pause after a limit or a failed message is not over."""
        return self.claimed or clock.elapsed() < self._suspended_until or super().is_blocked

    def take(self) -> list[ReceivedMessage]:
        """Claim the queue and return its next batch; empty while the queue is blocked."""
        if self.is_blocked:
            return []
        batch = self._resume() or self._next_batch()
        self.claimed = bool(batch)
        return batch

    def suspend(self, messages: list[ReceivedMessage], pause_s: float) -> None:
        """Keep these messages, the failed one first, and give no message for a while."""
        self._suspended = messages
        self._suspended_until = clock.elapsed() + pause_s
        self.show(FlowControl.SUSPENDED)

    def held_back(self) -> list[float]:
        """Return when each message comes that waits for the failed one, or for a full batch."""
        return [*[self._suspended_until] * len(self._suspended), *self._gathering.held_back]

    def due_times(self) -> list[float]:
        """Return when the queue may have something to give: also a batch that is not full, and the failed message."""
        times, due = super().due_times(), self._gathering.due
        if due is not None:
            times.append(due)
        if self._suspended:
            times.append(self._suspended_until)
        return times

    def _resume(self) -> list[ReceivedMessage]:
        messages, self._suspended = self._suspended, []
        if messages and not self.revoked:
            self._suspended_until = 0.0
            self.show(self.unhindered)
            return messages
        return []

    def _next_batch(self) -> list[ReceivedMessage]:
        if self.revoked or self.is_paused():
            return []
        return self.take_new() if self._size == 1 else self._gathering.take(self._size)


class OrderlyDelivery(Delivery[OrderlyQueue]):
    """The threads of one handler in one process, which keep the order of each queue."""

    keeps_order = True
    queue_type = OrderlyQueue

    def __init__(self, parts: Parts, retries: Retries) -> None:
        super().__init__(parts)
        self._suspension = Suspension(self._handler, self._config, retries, self.counters)

    def _serve(self, calls: Calls) -> None:
        while (taken := self._turns.take()) is not None:
            self._handle(calls, *taken)

    def _handle(self, calls: Calls, queue: OrderlyQueue, batch: list[ReceivedMessage]) -> None:
        queue.enter()
        left = batch.copy()
        hold = self._runner.run(
            calls,
            queue,
            self._next(left),
            self._call_with,
            partial(self._begin, calls, queue),
            partial(self._acknowledger.acknowledge_all, queue),
            self._suspension.after,
        )
        if hold is not None:
            queue.suspend(hold.messages + left[len(hold.messages) :], hold.seconds)
        queue.leave(batch[: len(batch) - len(left)])
        queue.claimed = False
        if len(self._calls) > 1:
            self.wake()

    def _next(self, left: list[ReceivedMessage]) -> Iterator[list[ReceivedMessage]]:
        """Yield what one call gets, and take it from ``left`` when it is finished."""
        size = 1 if self._handler.batch is None else len(left)
        while left:
            yield left[:size]
            del left[:size]

    def _call_with(self, messages: list[ReceivedMessage]) -> object:
        return self._call(messages[0] if self._handler.batch is None else messages)

    def _begin(self, calls: Calls, queue: OrderlyQueue, messages: list[ReceivedMessage]) -> Hold | Disposition | None:
        """Count the attempt, and tell what follows instead of the call; None if there is to be one."""
        while not (self._turns.stopping or queue.revoked):
            try:
                if queue.grant.begin(messages[0]):
                    calls.running = len(messages)
                    calls.running_slot.show(messages)
                    return self._suspension.before(calls, queue, messages)
                queue.revoked = True
            except StoreBusy as error:
                _log.warning("beginning message %d of %s: %s", messages[0].queue_offset, queue.queue, error)
        return Disposition.LOST
