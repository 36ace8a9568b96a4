"""Delivery: handler threads that take batches, call the handler for each message, and acknowledge.

The threads of one handler take turns at looking for messages: the one whose turn it is takes a batch from the next
queue that has one and handles it itself, while another one looks on. So no message changes threads between wake-up
and handler. With nothing to do the one whose turn it is sleeps on the arrival lane of its member.

==============  =====================================================================
handler         then
==============  =====================================================================
returns         the message is acknowledged, at once and by itself
raises          it is delivered again in place after a pause, to any thread
==============  =====================================================================
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from rmqclient.app import Handler
from rmqclient.codecs import decoder_for, message_itself
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.message import ReceivedMessage
from rmqclient.process_queue import ProcessQueue
from store import MessageStore
from store.errors import StoreBusy
from store.record import reason
from store.shared_state import arrival_lane_at

_log = logging.getLogger(__name__)

_LONGEST_SLEEP_MS = 500
"""A sender killed between publishing and waking leaves a sleeper; it looks again by itself after so long."""


class Calls:
    """The handler calls of one thread, so that one which never returns is noticed while other threads go on."""

    __slots__ = ("_seen", "_seen_at", "begun", "running")

    def __init__(self) -> None:
        self.begun = 0
        self.running = False
        self._seen = 0
        self._seen_at = 0

    def running_since(self, now: int) -> int:
        """Return when the present call was first seen running, 0 when none runs."""
        if self.begun != self._seen or not self.running:
            self._seen, self._seen_at = self.begun, now
        return self._seen_at if self.running else 0


class ConcurrentDelivery:
    """The threads of one handler in one process. Messages of a queue may be handled out of order and side by side."""

    def __init__(self, store: MessageStore, handler: Handler, arrival_lane: int, config: ConsumerConfig) -> None:
        self._words = store.state.words
        self._lane = arrival_lane
        self._lane_at = arrival_lane_at(arrival_lane)
        self._handler = handler
        self._call = calling(handler.function)
        self._is_async = inspect.iscoroutinefunction(handler.function)
        self._config = config
        self._turn = threading.Lock()
        self._queues: tuple[ProcessQueue, ...] = ()
        self._next = 0
        self._stopping = False
        self._counting = threading.Lock()
        self.running = 0
        """Messages whose handler runs now."""
        self.handled = 0
        self.failed = 0
        self.refused = 0
        """Acknowledgements refused because the queue had gone to somebody else."""
        self._calls = [Calls() for _ in range(handler.threads)]
        self._threads = [
            threading.Thread(target=self._run, args=(calls,), name=f"rmq-{handler.group}-{number}", daemon=True)
            for number, calls in enumerate(self._calls)
        ]

    def start(self) -> None:
        """Begin to deliver."""
        for thread in self._threads:
            thread.start()

    @property
    def queues(self) -> tuple[ProcessQueue, ...]:
        """The queues that are delivered from now."""
        return self._queues

    def set_queues(self, queues: tuple[ProcessQueue, ...]) -> None:
        """Deliver from these queues from now on."""
        self._queues = queues
        self.wake()

    def wake(self) -> None:
        """Make a sleeping thread look again."""
        self._words.signal(self._lane_at)

    def stop_taking(self) -> None:
        """Begin no further message; running ones go on."""
        self._stopping = True
        self.wake()

    def join(self, timeout_s: float) -> int:
        """Wait for the running handlers; return how many still run when the time is up."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return self.running if any(thread.is_alive() for thread in self._threads) else 0

    @staticmethod
    def is_handling(queue: ProcessQueue) -> bool:
        """Tell whether a handler runs, or is about to run, with a message of this queue."""
        return queue.running > 0

    def longest_running_since(self, now: int) -> int:
        """Return since when the handler call that runs longest has been seen running, 0 when none runs.

        ``now`` is CLOCK_BOOTTIME in ns. Seen by whoever asks, so it is as exact as the asking is frequent.
        """
        return min((since for calls in self._calls if (since := calls.running_since(now))), default=0)

    def _run(self, calls: Calls) -> None:
        if self._is_async:
            with asyncio.Runner() as runner:
                self._serve(lambda queue, batch: self._handle_async(runner, calls, queue, batch))
        else:
            self._serve(lambda queue, batch: self._handle(calls, queue, batch))

    def _serve(self, handle: Callable[[ProcessQueue, list[ReceivedMessage]], None]) -> None:
        while not self._stopping:
            taken = self._take()
            if taken is not None:
                handle(*taken)

    def _take(self) -> tuple[ProcessQueue, list[ReceivedMessage]] | None:
        """Return the next batch; sleeps with the turn held until there is one. None when stopping."""
        with self._turn:
            while not self._stopping:
                queues = self._queues
                for step in range(len(queues)):
                    queue = queues[(self._next + step) % len(queues)]
                    batch = queue.take()
                    if queue.grant.damaged:
                        report_damaged(queue)
                    if batch:
                        self._next += step + 1
                        return queue, batch
                self._sleep(queues)
        return None

    def _sleep(self, queues: tuple[ProcessQueue, ...]) -> None:
        seen = self._words.load32(self._lane_at)
        if queues is not self._queues or self._stopping:
            return
        pause_s = _LONGEST_SLEEP_MS / 1000
        for queue in queues:
            due = queue.next_due()
            if due is not None:
                pause_s = min(pause_s, due - time.monotonic())
            if queue.grant.arm(self._lane) and not queue.revoked and not queue.is_blocked:
                return
        if pause_s > 0:
            self._words.wait(self._lane_at, seen, max(1, int(pause_s * 1000)))

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

    def _acknowledge_late(self, queue: ProcessQueue, message: ReceivedMessage) -> bool:
        """Acknowledge a message however long somebody holds the mutex: its handler must not run again for that."""
        while True:
            try:
                return queue.grant.acknowledge(message)
            except StoreBusy as error:
                _log.warning("acknowledging message %d of %s: %s", message.queue_offset, queue.queue, error)
                if self._stopping or queue.revoked:
                    return False

    async def _gather(self, batch: list[ReceivedMessage]) -> list[BaseException | None]:
        calls: list[Coroutine[Any, Any, object]] = [self._call(message) for message in batch]
        results = await asyncio.gather(*calls, return_exceptions=True)
        return [result if isinstance(result, BaseException) else None for result in results]

    def _settle(
        self, queue: ProcessQueue, batch: list[ReceivedMessage], retried: list[ReceivedMessage], handled: int
    ) -> None:
        waiting = {message.queue_offset for message in retried}
        queue.settle([message for message in batch if message.queue_offset not in waiting] if waiting else batch)
        with self._counting:
            self.handled += handled
            self.failed += len(retried)

    def _failed(self, queue: ProcessQueue, message: ReceivedMessage, error: BaseException) -> None:
        pause_s = queue.retry_later(message)
        _log.warning(
            "group %s: attempt %d of message %s (%s, queue %d, offset %d) failed: %s: %s; again in %.1f s",
            self._handler.group, message.delivery_attempt, message.message_id, message.topic, message.queue_id,
            message.queue_offset, type(error).__name__, error, pause_s,
            exc_info=error if message.delivery_attempt == 1 else None,
        )  # fmt: skip

    def _refused(self, queue: ProcessQueue) -> None:
        if not queue.revoked:
            queue.revoked = True
            _log.warning(
                "group %s lost queue %d of %s while a message was handled: it will be delivered again elsewhere",
                self._handler.group, queue.queue.queue_id, queue.queue.topic,
            )  # fmt: skip
        self.refused += 1

    def _count_running(self, queue: ProcessQueue, batches: int, messages: int) -> None:
        with self._counting:
            queue.running += batches
            self.running += messages


def calling(function: Callable[..., Any]) -> Callable[[ReceivedMessage], Any]:
    """Return what calls a handler with what its annotation asks for."""
    decode = decoder_for(function)
    if decode is message_itself:
        return function
    if inspect.iscoroutinefunction(function):

        async def call_async(message: ReceivedMessage) -> object:
            return await function(decode(message))

        return call_async
    return lambda message: function(decode(message))


def report_damaged(queue: ProcessQueue) -> None:
    """Say which messages a take stepped over because their records are damaged."""
    for queue_offset, commit_log_offset, found in queue.grant.damaged:
        _log.error(
            "%s, queue %d, offset %d: the record at %d of the commit log is damaged (%s); it was stepped over",
            queue.queue.topic, queue.queue.queue_id, queue_offset, commit_log_offset, reason(found),
        )  # fmt: skip
    queue.grant.damaged.clear()
