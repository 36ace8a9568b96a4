"""Concurrent delivery: messages of a queue out of order and side by side, each acknowledged by itself.

==============  =====================================================================
handler         then
==============  =====================================================================
returns         the message is acknowledged, at once
raises          it is delivered again in place after a pause, to any thread
==============  =====================================================================
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Coroutine
from typing import Any

from rmqclient.delivery import Calls, Delivery
from rmqclient.message import ReceivedMessage
from rmqclient.process_queue import ProcessQueue
from store.errors import StoreBusy

_log = logging.getLogger(__name__)


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
        retried: list[ReceivedMessage] = []
        handled = 0
        calls.running = True
        self._count_running(queue, 1, 1)
        for message in batch:
            if self._stopping or queue.revoked:
                break
            calls.begun += 1
            try:
                call(message)
            except BaseException as error:  # noqa: BLE001 - sys.exit() in a handler is a failure of this message, too
                retried.append(message)
                self._failed(queue, message, error)
            else:
                try:
                    taken = acknowledge(message)
                except StoreBusy:
                    taken = self._acknowledge_late(queue, message)
                if taken:
                    handled += 1
                else:
                    self._refused(queue)
        self._count_running(queue, -1, -1)
        calls.running = False
        self._settle(queue, batch, retried, handled)

    def _handle_async(
        self, runner: asyncio.Runner, calls: Calls, queue: ProcessQueue, batch: list[ReceivedMessage]
    ) -> None:
        """Run the coroutines of a batch side by side, in the loop of this thread."""
        self._count_running(queue, 1, len(batch))
        calls.begun += 1
        calls.running = True
        outcomes = runner.run(self._gather(batch)) if not queue.revoked else []
        retried = []
        handled = 0
        for message, error in zip(batch, outcomes, strict=False):
            if error is not None:
                retried.append(message)
                self._failed(queue, message, error)
            elif self._acknowledge_late(queue, message):
                handled += 1
            else:
                self._refused(queue)
        self._count_running(queue, -1, -len(batch))
        calls.running = False
        self._settle(queue, batch, retried, handled)

    async def _gather(self, batch: list[ReceivedMessage]) -> list[BaseException | None]:
        calls: list[Coroutine[Any, Any, object]] = [self._call(message) for message in batch]
        results = await asyncio.gather(*calls, return_exceptions=True)
        return [result if isinstance(result, BaseException) else None for result in results]

    def _failed(self, queue: ProcessQueue, message: ReceivedMessage, error: BaseException) -> None:
        pause_s = queue.retry_later(message)
        _log.warning(
            "group %s: attempt %d of message %s (%s, queue %d, offset %d) failed: %s: %s; again in %.1f s",
            self._handler.group, message.delivery_attempt, message.message_id, message.topic, message.queue_id,
            message.queue_offset, type(error).__name__, error, pause_s,
            exc_info=error if message.delivery_attempt == 1 else None,
        )  # fmt: skip
