"""Delivery: handler threads that take batches, and what the ways of handling a batch have in common.

The threads of one handler take turns at looking for messages: the one whose turn it is takes a batch from the next
queue that has one and handles it itself, while another one looks on. So no message changes threads between wake-up
and handler. With nothing to do the one whose turn it is sleeps on the arrival lane of its member.

=============================================  ========================================================
way                                            what handling a batch means
=============================================  ========================================================
:mod:`rmqclient.concurrent_delivery`           messages of a queue out of order and side by side
=============================================  ========================================================
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from rmqclient.codecs import decoder_for, message_itself
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.handler import Handler
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


class Delivery(ABC):
    """The threads of one handler in one process."""

    def __init__(self, store: MessageStore, handler: Handler, arrival_lane: int, config: ConsumerConfig) -> None:
        self._words = store.state.words
        self._lane = arrival_lane
        self._lane_at = arrival_lane_at(arrival_lane)
        self._handler = handler
        self._call = calling(handler.function)
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
            threading.Thread(target=self._serve, args=(calls,), name=f"rmq-{handler.group}-{number}", daemon=True)
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

    @abstractmethod
    def _serve(self, calls: Calls) -> None:
        """Take and handle batches in one thread until :meth:`stop_taking`."""

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

    def _acknowledge_late(self, queue: ProcessQueue, message: ReceivedMessage) -> bool:
        """Acknowledge a message however long somebody holds the mutex: its handler must not run again for that."""
        while True:
            try:
                return queue.grant.acknowledge(message)
            except StoreBusy as error:
                _log.warning("acknowledging message %d of %s: %s", message.queue_offset, queue.queue, error)
                if self._stopping or queue.revoked:
                    return False

    def _settle(
        self, queue: ProcessQueue, batch: list[ReceivedMessage], retried: list[ReceivedMessage], handled: int
    ) -> None:
        waiting = {message.queue_offset for message in retried}
        queue.settle([message for message in batch if message.queue_offset not in waiting] if waiting else batch)
        with self._counting:
            self.handled += handled
            self.failed += len(retried)

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
