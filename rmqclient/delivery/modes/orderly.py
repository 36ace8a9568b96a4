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

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any

from rmqclient.backend.group_protocols import Death, Grant, Membership
from rmqclient.backend.protocols import Backend
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.delivery.caller import Callers
from rmqclient.delivery.calls import Calls
from rmqclient.delivery.delivery import Delivery
from rmqclient.delivery.modes.gathering import Gathering
from rmqclient.delivery.process_queue import FlowControl, ProcessQueue
from rmqclient.delivery.suspension import Suspension
from rmqclient.failures.retry import Retries
from rmqclient.handler import Handler, check_ran
from rmqclient.message import ReceivedMessage
from rmqclient.steps.ends import failures_in
from rmqclient.store import clock
from rmqclient.store.errors import StoreBusy
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class OrderlyQueue(ProcessQueue):
    """One granted queue, and the messages of it that wait because the first of them failed."""

    def __init__(
        self,
        grant: Grant,
        handler: Handler,
        config: ConsumerConfig,
        deaths: Mapping[int, Sequence[Death]],
    ) -> None:
        super().__init__(grant, config, deaths)
        self.claimed = False
        """Whether a thread has messages of the queue: no other thread takes until that one has finished."""
        self._size = handler.batch_size
        self._gathering = Gathering(self, handler.linger_s)
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

    def __init__(
        self,
        backend: Backend,
        handler: Handler,
        membership: Membership,
        retries: Retries,
        config: ConsumerConfig,
        callers: Callers,
    ) -> None:
        super().__init__(backend, handler, membership, config, callers)
        self._suspension = Suspension(handler, config, retries)

    def make_queue(self, grant: Grant, deaths: Mapping[int, Sequence[Death]]) -> OrderlyQueue:
        """Return the process queue of this mode for a grant."""
        return OrderlyQueue(grant, self._handler, self._config, deaths)

    def _serve(self, calls: Calls) -> None:
        call = self._callers.waiting(self._handler, self._call)
        while (taken := self._turns.take()) is not None:
            self._handle(calls, call, *taken)

    def _handle(
        self, calls: Calls, call: Callable[[Any], object], queue: OrderlyQueue, batch: list[ReceivedMessage]
    ) -> None:
        queue.enter()
        calls.running = 1
        calls.running_slot.serve(queue.grant.group_queue)
        calls.current.grant = queue.grant
        done = 0
        for messages in [batch] if self._handler.batch is not None else [[message] for message in batch]:
            if not self._begin(queue, messages[0]):
                break
            calls.begun += 1
            calls.running_slot.show(messages)
            calls.current.message = messages[0]
            pause_s = self._pause_after(call, calls, queue, messages)
            if pause_s:
                queue.suspend([message.redelivered() for message in messages] + batch[done + len(messages) :], pause_s)
                break
            if not self._is_finished(queue, messages, is_handled=pause_s is None):
                self._acknowledger.refused(queue)
                break
            done += len(messages)
        calls.rest()
        calls.handled += done
        queue.leave(batch[:done])
        queue.claimed = False
        if len(self._calls) > 1:
            self.wake()

    def _is_finished(self, queue: OrderlyQueue, messages: list[ReceivedMessage], *, is_handled: bool) -> bool:
        if is_handled:
            return self._acknowledger.acknowledge_all(queue, messages)
        return self._acknowledger.give_back(queue, messages, dead_lettered=True)

    def _begin(self, queue: OrderlyQueue, message: ReceivedMessage) -> bool:
        """Count the attempt. False when the queue has gone to another member, or the consumer stops."""
        while not (self._turns.stopping or queue.revoked):
            try:
                if queue.grant.begin(message):
                    return True
                queue.revoked = True
            except StoreBusy as error:
                _log.warning("beginning message %d of %s: %s", message.queue_offset, queue.queue, error)
        return False

    def _pause_after(
        self, call: Callable[[Any], object], calls: Calls, queue: OrderlyQueue, messages: list[ReceivedMessage]
    ) -> float | None:
        """Run the handler. Return None when it has returned, 0 when the messages have become dead letters.

        Otherwise return in how many seconds they come again.
        """
        pause_s = self._suspension.before(messages)
        if pause_s == 0:
            self._count_failed(queue, len(messages))
        if pause_s is not None:
            return pause_s
        try:
            for message in messages:
                message.check_opened()
            given = messages if self._handler.batch is not None else messages[0]
            check_ran(copy_context().run(call, given))
            calls.leave_if_forked()
        except BaseException as error:  # noqa: BLE001 - sys.exit() in a handler is a failure of this message, too
            calls.leave_if_forked(error)
            failed = failures_in(error) * len(messages)
            calls.running_slot.fail(failed)
            self._count_failed(queue, failed)
            return self._suspension.after(messages, error)
        return None

    def _count_failed(self, queue: OrderlyQueue, attempts: int) -> None:
        """Count attempts before their messages are given back: what failed is never less than the dead letters."""
        queue.grant.count_failed(attempts)
        self.counters.add(failed=attempts)
