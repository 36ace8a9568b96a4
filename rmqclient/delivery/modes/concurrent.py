"""Concurrent delivery: messages of a queue out of order and side by side, each acknowledged by itself.

==============  =====================================================================
handler         then
==============  =====================================================================
returns         the message is acknowledged, at once
raises          it is stored for its next attempt, or as a dead letter, and then acknowledged
==============  =====================================================================

A thread takes a batch, because that is cheap, and handles its messages one after the other. While one message keeps
the thread, idle threads take over the rest of its batch, one message at a time. So a slow message delays another one
only until an idle thread notices it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import length_hint

from rmqclient.delivery.calls import Calls
from rmqclient.delivery.delivery import Delivery, Parts
from rmqclient.delivery.modes.concurrent_queue import ConcurrentQueue
from rmqclient.delivery.modes.send_back import SendBack, StoresFailures
from rmqclient.delivery.runner import Disposition
from rmqclient.delivery.suspects import is_suspect
from rmqclient.delivery.turns import Relief
from rmqclient.message import ReceivedMessage


class ConcurrentDelivery(Delivery[ConcurrentQueue]):
    """The threads of one handler in one process. Messages of a queue may be handled out of order and side by side."""

    queue_type = ConcurrentQueue

    def __init__(self, parts: Parts, failures: StoresFailures) -> None:
        super().__init__(parts)
        self.siblings: dict[str, ConcurrentDelivery]
        """By topic, the deliveries of the group in this process, this one too; they share the group's retry topic."""
        self.pass_on: Callable[[str], bool]
        """Lets another process have the retry topic that has a handler for this topic; tells whether there is one."""
        self.stand_alone()
        self.send_back = SendBack(self._handler.group, failures, self._acknowledger, self.counters, self._steps_factory)
        """Sends back the handler's messages that cannot be finished."""
        self._own_queues: tuple[ConcurrentQueue, ...] = ()
        self._retry_queues: tuple[ConcurrentQueue, ...] = ()

    def stand_alone(self) -> None:
        """Know of no sibling and of no other process: before the start, and after the end."""
        self.siblings, self.pass_on = {}, _to_nobody

    @property
    def queues(self) -> tuple[ConcurrentQueue, ...]:
        """The queues of the handler's own topic that messages are delivered from."""
        return self._own_queues

    def set_queues(self, queues: tuple[ConcurrentQueue, ...]) -> None:
        """Deliver from these queues from now on."""
        self._own_queues = queues
        self._turns.look_at(queues + self._retry_queues)

    def set_retry_queues(self, queues: tuple[ConcurrentQueue, ...]) -> None:
        """Deliver from these queues of the group's retry topic, too."""
        self._retry_queues = queues
        self._turns.look_at(self._own_queues + queues)

    def hand(self, queue: ConcurrentQueue, message: ReceivedMessage) -> None:
        """Deliver this message, which another delivery has taken from the group's retry topic."""
        self._turns.hand(queue, message)

    def is_between(self, queue: ConcurrentQueue) -> bool:
        """Tell that of the threads of all handlers that a queue of the retry topic is for, too."""
        return any(super(ConcurrentDelivery, each).is_between(queue) for each in self.siblings.values() or (self,))

    def has_waiting(self, queues: Iterable[ConcurrentQueue]) -> bool:
        """Tell whether messages could begin if a thread were free, those that a thread has taken included."""
        return super().has_waiting(queues) or any(length_hint(calls.unfinished) for calls in self._calls)

    def _relief(self) -> Relief | None:
        return Relief(self._calls)

    def _serve(self, calls: Calls) -> None:
        while (taken := self._turns.take()) is not None:
            queue, batch = taken
            if queue.is_mixed:
                batch = self._handle_suspects(calls, queue, self._dispatch(queue, batch))
            if batch:
                self._handle(calls, queue, batch)

    def _handle_suspects(
        self, calls: Calls, queue: ConcurrentQueue, batch: list[ReceivedMessage]
    ) -> list[ReceivedMessage]:
        """Run each message that may have killed a process while no other one runs; return the rest."""
        others: list[ReceivedMessage] = []
        for message in batch:
            if is_suspect(queue, message):
                with self._suspects.alone(lambda: self._turns.stopping or queue.revoked):
                    self._handle(calls, queue, [message])
            else:
                others.append(message)
        return others

    def _dispatch(self, queue: ConcurrentQueue, batch: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Return the messages that run here; send back those that must not run, hand the others to their handlers."""
        own: list[ReceivedMessage] = []
        queue.enter()
        try:
            for message in batch:
                if queue.revoked:
                    break
                delivery = self.siblings.get(message.topic) if queue.is_retry else self
                if message.unopened is not None:
                    self.send_back.unopened(queue, message, message.unopened)
                elif delivery is None:
                    self.send_back.without_handler(queue, message, is_elsewhere=self.pass_on(message.topic))
                elif delivery.send_back.interrupted(queue, message):
                    continue
                elif delivery is self:
                    own.append(message)
                else:
                    delivery.hand(queue, message)
        finally:
            queue.leave()
        return own

    def _handle(self, calls: Calls, queue: ConcurrentQueue, batch: list[ReceivedMessage]) -> None:
        calls.queue, calls.unfinished = queue, iter(batch)
        queue.enter()
        begin, acknowledge = calls.running_slot.begin, queue.grant.acknowledge
        self._runner.run(calls, queue, calls.unfinished, self._call, begin, acknowledge, self._failed)
        self._account(calls, queue, calls.close_batch(batch))

    def _failed(
        self, calls: Calls, queue: ConcurrentQueue, messages: list[ReceivedMessage], error: BaseException
    ) -> Disposition:
        return self.send_back.failed_in(calls, queue, [(message, error) for message in messages])

    def _account(self, calls: Calls, queue: ConcurrentQueue, batch: list[ReceivedMessage]) -> None:
        """Count a batch as over. Messages that failed and could not be stored stay in flight."""
        if calls.kept:
            kept, calls.kept = calls.kept, []
            self.counters.add(failed=len(kept))
            batch = [message for message in batch if message not in kept]
        queue.leave(batch)


def _to_nobody(_topic: str) -> bool:
    return False
