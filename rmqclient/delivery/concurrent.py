"""Concurrent delivery: messages of a queue out of order and side by side, each acknowledged by itself.

==============  =====================================================================
handler         then
==============  =====================================================================
returns         the message is acknowledged, at once
raises          it is stored for its next attempt, or as a dead letter, and then acknowledged
==============  =====================================================================

A thread takes a batch, because that is cheap, and goes through it. While one message keeps it, threads that have
nothing to do take over the rest of its batch, one message at a time: so a slow message holds up no other one for longer
than it takes to notice that.
"""

from __future__ import annotations

import asyncio
import inspect
from operator import length_hint

from rmqclient.delivery.delivery import Calls, Delivery
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.message import ReceivedMessage
from rmqclient.store.errors import StoreBusy

_KEPT_S = 0.005
"""How long a message must have kept its thread before others take over the rest of its batch."""


class ConcurrentDelivery(Delivery):
    """The threads of one handler in one process. Messages of a queue may be handled out of order and side by side."""

    def _serve(self, calls: Calls) -> None:
        if inspect.iscoroutinefunction(self._handler.function):
            with asyncio.Runner() as runner:
                while (taken := self._take()) is not None:
                    self._handle_async(runner, calls, *taken)
        else:
            while (taken := self._take()) is not None:
                self._handle(calls, *taken)

    def _handle(self, calls: Calls, queue: ProcessQueue, batch: list[ReceivedMessage]) -> None:
        call, acknowledge = self._call, queue.grant.acknowledge
        calls.queue, calls.rest = queue, iter(batch)
        retried: list[ReceivedMessage] = []
        handled = 0
        calls.running = 1
        self._count_running(queue, 1)
        calls.slot.serve(queue.slot.number)
        begin = calls.slot.begin
        for message in calls.rest:
            if self._stopping or queue.revoked:
                break
            calls.begun += 1
            begin(message)
            try:
                call(message)
            except BaseException as error:  # noqa: BLE001 - sys.exit() in a handler is a failure of this message, too
                if not self._failed(queue, message, error):
                    retried.append(message)
            else:
                try:
                    taken = acknowledge(message)
                except StoreBusy:
                    taken = self._acknowledge_late(queue, message)
                if taken:
                    handled += 1
                else:
                    self._refused(queue)
        calls.slot.rest()
        self._count_running(queue, -1)
        calls.running = 0
        self._settle(queue, self._without_relieved(calls, batch), retried, handled)

    def _relieve(self) -> tuple[ProcessQueue, list[ReceivedMessage]] | None:
        for calls in self._calls:
            if calls.is_kept(_KEPT_S) and (message := self._take_over_from(calls)) is not None:
                return calls.queue, [message]
        return None

    def _take_over_from(self, calls: Calls) -> ReceivedMessage | None:
        with self._counting:  # the other thread counts what it has handled under the same lock
            if not length_hint(calls.rest) or calls.queue.lease_is_over or not calls.queue.grant.valid:
                return None  # a batch of a queue that was lost is for its next owner
            message = next(calls.rest, None)
            if message is not None:
                calls.relieved.append(message)
            return message

    def _without_relieved(self, calls: Calls, batch: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Return what this thread has to account for; nobody takes over anything of the batch from now on."""
        with self._counting:
            calls.rest = iter(())
            relieved, calls.relieved = calls.relieved, []
        return [message for message in batch if message not in relieved] if relieved else batch

    def _longest_sleep_s(self) -> float:
        waits = any(length_hint(calls.rest) for calls in self._calls)
        return _KEPT_S if waits else super()._longest_sleep_s()

    def _handle_async(
        self, runner: asyncio.Runner, calls: Calls, queue: ProcessQueue, batch: list[ReceivedMessage]
    ) -> None:
        """Run the coroutines of a batch side by side, in the loop of this thread."""
        self._count_running(queue, 1)
        calls.begun += 1
        calls.running = len(batch)
        calls.slot.serve(queue.slot.number)
        calls.slot.begin_batch(batch)
        outcomes = runner.run(self._gather(batch)) if not queue.revoked else []
        retried = []
        handled = 0
        for message, error in zip(batch, outcomes, strict=False):
            if error is not None:
                if not self._failed(queue, message, error):
                    retried.append(message)
            elif self._acknowledge_late(queue, message):
                handled += 1
            else:
                self._refused(queue)
        calls.slot.rest()
        self._count_running(queue, -1)
        calls.running = 0
        self._settle(queue, batch, retried, handled)

    async def _gather(self, batch: list[ReceivedMessage]) -> list[BaseException | None]:
        return await asyncio.gather(*(self._outcome(message) for message in batch))

    async def _outcome(self, message: ReceivedMessage) -> BaseException | None:
        try:
            await self._call(message)
        except BaseException as error:  # noqa: BLE001 - the loop would end with SystemExit, and the thread with it
            return error
        return None
