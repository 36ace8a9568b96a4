"""Write buffer: messages of one process that are not in the log yet and will be appended in batches.

RocketMQ's transient store pool (``transientStorePoolEnable``) is the model. That pool, too, is flushed every 200 ms,
and its messages die with the process. This buffer holds messages instead of a mapped page range, because the log
belongs to several processes.

Consecutive messages of one topic and sharding key are one batch. Batches are appended in the order of their messages.
A batch that fails stays in the buffer, and so do all batches behind it, so messages never overtake each other. One that
is stored, although the append raised, leaves the buffer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rmqclient.store.errors import NotFlushed, NotReplicated, QueueError, StoreClosed
from rmqclient.store.kernel._kernel import Message, SendResult
from rmqclient.store.native_threads import threading
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

BATCH_MESSAGES = 1_024
BATCH_BYTES = 1 << 20
"""A batch is copied under the append lock, for which every other sender waits."""

_STORED = (NotFlushed, NotReplicated)
"""Raised for a batch that is stored all the same."""


class BatchAppender(Protocol):
    """What a write buffer appends its batches by: the appender of a store, or what sends them elsewhere."""

    def record_size(self, message: Message, sharding_key: str | None, /) -> int:
        """Return how many bytes a message takes. Raises what an append of it would raise."""

    def queue_of(self, message: Message, sharding_key: str | None, /) -> int | None:
        """Return the number of the only queue that a message may go to; None if the queues take turns."""

    def append_batch(self, messages: Sequence[Message], sharding_key: str | None, /) -> list[SendResult]:
        """Append messages of one topic to one queue, in order."""


@dataclass(slots=True)
class _Batch:
    topic: str
    sharding_key: str | None
    queue: int | None
    """Number of the only queue that its messages may go to; None if the queues take turns."""
    room: int
    messages: list[Message] = field(default_factory=list)
    size: int = 0


class WriteBuffer:
    """Collects messages up to ``limit_bytes`` of records, for any thread of one process.

    A thread of its own flushes every ``commit_interval_ms``. Adding a message waits for a flush only if the buffer is
    full, so a slow disk or a stuck append of another process does not delay senders before that.
    """

    def __init__(
        self,
        appender: BatchAppender,
        limit_bytes: int,
        *,
        commit_interval_ms: int = 200,
        batch_messages: int = BATCH_MESSAGES,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self._appender = appender
        self._limit_bytes = limit_bytes
        self._interval_s = commit_interval_ms / 1000
        self._batch_messages = batch_messages
        self._batch_bytes = batch_bytes
        self._flushing = threading.Lock()  # taken before the other one
        self._lock = threading.Lock()  # guards what follows
        self._batches: deque[_Batch] = deque()
        self._last: _Batch | None = None  # takes more messages; None when the last batch is being appended
        self._size = 0
        self._failure: Exception | None = None
        self._filled = threading.Event()
        self._closed = threading.Event()
        self._thread = GuardedThread(target=self._run, name="rmq-write-buffer")
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether the buffer takes no more messages."""
        return self._closed.is_set()

    def __len__(self) -> int:
        """Return how many messages are not in the log yet."""
        with self._lock:
            return sum(len(batch.messages) for batch in self._batches)

    def add(self, message: Message, sharding_key: str | None) -> None:
        """Take a message, whose body must be bytes; flushes first if the message does not fit.

        Raises what an append of the message would raise. Also raises what the last flush raised, unless a later flush
        succeeded. In both cases the message was not taken.
        """
        size = self._appender.record_size(message, sharding_key)
        queue = self._appender.queue_of(message, sharding_key)
        while not self._try_add(message, sharding_key, queue, size):
            self.flush()

    def flush(self) -> int:
        """Append everything now; return how many messages. Raises as an append; the rest stays in the buffer."""
        with self._flushing:
            self._check_open()
            self._failure = None
            return self._flush()

    def close(self) -> None:
        """Flush and stop. Raises as an append; if the error is retryable, the buffer stays open.

        What is raised for messages that are stored all the same is raised when those behind them are stored, too.
        """
        late: QueueError | None = None
        with self._flushing:
            try:
                while not self.is_closed:
                    try:
                        self._flush()
                    except _STORED as error:
                        late = error
                    self._close_if_empty()
            except QueueError as error:
                if not error.retryable:
                    self._closed.set()
                raise
            finally:
                self._filled.set()
        self._thread.join()
        if late is not None:
            raise late

    def _try_add(self, message: Message, sharding_key: str | None, queue: int | None, size: int) -> bool:
        """Take the message unless the buffer is full."""
        with self._lock:
            self._check_open()
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._size and self._size + size > self._limit_bytes:
                return False
            batch = self._last
            if (
                batch is None
                or batch.sharding_key != sharding_key
                or batch.queue != queue
                or batch.topic != message.topic
                or batch.room == 0
                or batch.size + size > self._batch_bytes
            ):
                batch = self._last = _Batch(message.topic, sharding_key, queue, self._batch_messages)
                self._batches.append(batch)
                self._filled.set()
            batch.messages.append(message)
            batch.room -= 1
            batch.size += size
            self._size += size
            return True

    def _check_open(self) -> None:
        if self.is_closed:
            raise StoreClosed("this write buffer was closed")

    def _close_if_empty(self) -> None:
        with self._lock:
            if not self._batches:
                self._closed.set()

    def _flush(self) -> int:
        """Append the present batches, oldest first; the caller holds ``_flushing``."""
        flushed = 0
        for _ in range(len(self._batches)):
            with self._lock:
                batch = self._batches[0]
                if batch is self._last:
                    self._last = None
            try:
                self._appender.append_batch(batch.messages, batch.sharding_key)
            except _STORED:  # it would be stored again
                self._drop(batch)
                raise
            self._drop(batch)
            flushed += len(batch.messages)
        return flushed

    def _drop(self, batch: _Batch) -> None:
        with self._lock:
            self._batches.popleft()
            self._size -= batch.size

    def _run(self) -> None:
        while True:
            self._filled.wait()
            if self._closed.wait(self._interval_s):
                return
            with self._flushing:
                self._flush_in_background()

    def _flush_in_background(self) -> None:
        self._filled.clear()
        try:
            self._flush()
        except (QueueError, OSError) as error:
            self._filled.set()
            if self._failure is None:
                _log.error("%d bytes of messages stay in the write buffer: %s", self._size, error)
            self._failure = error
        else:
            self._failure = None
