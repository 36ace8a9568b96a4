"""Dispatcher: sends records of the message trace, behind the messages that they are about. [AsyncTraceDispatcher]

Putting a record costs an append to a list in memory. A thread collects for a tenth of a second, or until the queue is
half full, and sends what has come as a few messages. Records that do not fit into the queue, and those that cannot be
sent, are dropped and counted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from rmqclient.backend.backend import Backend
from rmqclient.backend.protocols import ProducerSettings, Sender
from rmqclient.message import Message
from rmqclient.store import MessageQueue
from rmqclient.store.errors import MessageRejected, QueueError
from rmqclient.store.native_threads import threading
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log
from rmqclient.tracing.records import TRACE_TOPIC, Record

_log = Log(__name__)

MOST_WAITING = 2_048
"""Records that wait to be sent, at most. [queueSize]"""
_MOST_RECORDS = 100
"""Of one trace message. [batchSize]"""
_MOST_KEY_BYTES = 16_000
"""Of one trace message, whose properties have a limit of 32 KiB."""
_COLLECT_S = 0.1
_CLOSE_S = 3.0
_REPORT_EVERY_S = 60.0


class Dispatcher:
    """The queue of one producer or consumer, and its thread, which the first record starts. Safe for threads."""

    def __init__(self, backend: Backend, group: str) -> None:
        self.dropped = 0
        """Records that were not sent."""
        self._backend = backend
        self._group = f"_INNER_TRACE_PRODUCER-{group}"
        self._sender: Sender | None = None
        self._waiting: deque[Record] = deque()
        self._filled = threading.Event()
        self._hurry = threading.Event()
        """Ends the time of collecting: the queue is half full, or no more records come."""
        self._closing = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._reported_at = -_REPORT_EVERY_S

    def put(self, record: Record) -> None:
        """Take a record, or drop it when too many wait. Never waits."""
        waiting = len(self._waiting)
        if waiting >= MOST_WAITING or self._closing:
            self.dropped += 1
            return
        self._waiting.append(record)
        if waiting == MOST_WAITING // 2:
            self._hurry.set()
        if not self._filled.is_set():
            self._filled.set()
            self._start()

    def close(self) -> None:
        """Send what waits, for at most three seconds. Closing twice does nothing."""
        self._closing = True
        self._hurry.set()
        self._filled.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_CLOSE_S)
            if thread.is_alive():
                _log.warning("message trace: %d records could not be sent before the end", len(self._waiting))

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = GuardedThread(target=self._run, name="rmq-message-trace")
                self._thread.start()

    def _run(self) -> None:
        try:
            while not self._closing:
                self._filled.wait()
                self._hurry.wait(_COLLECT_S)
                self._hurry.clear()
                self._filled.clear()
                self._send_all()
            self._send_all()
        finally:
            sender, self._sender = self._sender, None  # it refers to this object, by `_make_topic`
            if sender is not None:
                sender.close()

    def _send_all(self) -> None:
        for records in _batches(self._waiting):
            self._send(records)

    def _send(self, records: list[Record]) -> None:
        try:
            if self._sender is None:
                settings = ProducerSettings(self._make_topic, self._group)
                self._sender = self._backend.producers.sender(settings)
            self._sender.append(_message(records))
        except (QueueError, OSError, MemoryError, ValueError) as error:
            if isinstance(error, ValueError | MessageRejected) and len(records) > 1:
                for record in records:  # one of them is odd, such as an id with a blank
                    self._send([record])
                return
            self.dropped += len(records)
            self._report(error)

    def _make_topic(self, topic: str) -> list[MessageQueue]:
        return self._backend.topics.create(topic, 1)

    def _report(self, error: Exception) -> None:
        now = time.monotonic()
        if now - self._reported_at >= _REPORT_EVERY_S:
            self._reported_at = now
            _log.warning("message trace: %d records dropped so far: %s: %s", self.dropped, type(error).__name__, error)


def _batches(waiting: deque[Record]) -> Iterator[list[Record]]:
    """Yield what waits, in parts that fit into a message each."""
    batch: list[Record] = []
    size = 0
    for _ in range(len(waiting)):
        record = waiting.popleft()
        needed = len(record.message_id) + sum(len(key) + 1 for key in record.keys) + 1
        if batch and (len(batch) == _MOST_RECORDS or size + needed > _MOST_KEY_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += needed
    if batch:
        yield batch


def _message(records: list[Record]) -> Message:
    keys = dict.fromkeys(key for record in records for key in (record.message_id, *record.keys))
    return Message(TRACE_TOPIC, "".join(record.encoded() for record in records).encode(), keys=list(keys))
