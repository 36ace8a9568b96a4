"""Producer: sends messages to a store from one process."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from rmqclient.codecs import encode_body
from rmqclient.due_time import due_ms
from rmqclient.message import Message, SendResult
from rmqclient.names import check_group, check_topic
from store import Durability, MessageQueue, MessageStore, StoreConfig, open_store
from store.errors import StoreClosed, TableFull
from store.write_buffer import WriteBuffer


class Producer:
    """Sends messages; a context manager, and safe to share between the threads of one process.

    ``root`` is the directory of a store, made when it is missing, or an open store. ``group`` names the producers of
    one application. With ``StoreConfig(durability=Durability.SYNC)`` a send returns when its message is on the disk.

    ``write_buffer_bytes`` gives :meth:`send_buffered` a buffer in this process [transientStorePoolEnable]; 0 for none.

    After a fork the child must make its own; this one raises StoreClosed there.
    """

    def __init__(
        self,
        root: Path | str | MessageStore,
        *,
        group: str = "DEFAULT_PRODUCER",
        config: StoreConfig | None = None,
        write_buffer_bytes: int = 0,
    ) -> None:
        self.group = check_group(group)
        _check_write_buffer(write_buffer_bytes, root.config if isinstance(root, MessageStore) else config)
        self._own_store = not isinstance(root, MessageStore)
        self._store = root if isinstance(root, MessageStore) else open_store(root, config)
        settings = config or self._store.config
        self._flusher = self._store.flusher if settings.durability is Durability.SYNC else None
        self._queue_count = settings.default_queue_count
        appender = self._store.appender(self._make_topic, encode_body, prepare=self._flusher is None)
        self._append: Callable[[Message, str | None, int, int], SendResult] = appender.append
        self._append_batch: Callable[[Sequence[Message], str | None, int, int], list[SendResult]] = (
            appender.append_batch
        )
        self._cancel: Callable[[str], bool] = partial(self._store.timer.cancel, appender=appender)
        self._append_half: Callable[[Message, str, str | None, int], SendResult] = appender.append_half
        self._buffer = WriteBuffer(appender, settings, write_buffer_bytes) if write_buffer_bytes else None
        _producers.add(self)

    def send(
        self,
        message: Message,
        sharding_key: str | None = None,
        *,
        delay_level: int = 0,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
    ) -> SendResult:
        """Store one message and return where it stands.

        Messages with the same ``sharding_key`` go to the same queue (SelectMessageQueueByHash); without one the queues
        take turns. A topic is made by its first message. When this returns the message survives ``kill -9`` of any
        process, and with SYNC durability a power cut.

        With a ``delay_level`` nobody gets the message before its time: 1 to 18 are 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m
        8m 9m 10m 20m 30m 1h 2h after it was stored. Until then it waits in ``SCHEDULE_TOPIC_XXXX``, which is the place
        that the result tells; whoever is the housekeeper then delivers it, to the queue chosen now. What still waits
        when retention removes its file is lost, as in RocketMQ.

        With a ``delay``, or at the time ``deliver_at``, nobody gets the message before that, by the clock of the host;
        to the ms when it is idle, and up to ten years from now. It waits in ``rmq_sys_wheel_timer``, through retention
        too, and can be cancelled: :meth:`cancel`. A time that has passed is at once.

        Raises ValueError for another ``delay_level``, a negative or longer ``delay``, a ``deliver_at`` without a time
        zone, or more than one of them; TimerFull when 16 million messages wait; MessageRejected, InvalidName,
        StoreFull, StoreBusy, StorePoisoned, StoreClosed, LimitReached, DiskFailed, NotFlushed, StoreUnusable; nothing
        was written unless the error's ``stored`` says so.
        """
        due = due_ms(delay_level, delay, deliver_at) if delay is not None or deliver_at is not None else 0
        result = self._append(message, sharding_key, delay_level, due)
        if self._flusher is not None:
            self._flusher.wait_until_flushed(result.commit_log_end)
        return result

    def send_batch(
        self,
        messages: Sequence[Message],
        sharding_key: str | None = None,
        *,
        delay_level: int = 0,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
    ) -> list[SendResult]:
        """Store messages of one topic in one queue, in order, all of them or none. Raises as :meth:`send`.

        With a delay of either kind all of them wait, or none; they are due together, and delivered one by one in order.
        RocketMQ refuses delayed batches.
        """
        due = due_ms(delay_level, delay, deliver_at) if delay is not None or deliver_at is not None else 0
        results = self._append_batch(messages, sharding_key, delay_level, due)
        if self._flusher is not None and results:
            self._flusher.wait_until_flushed(results[-1].commit_log_end)
        return results

    def cancel(self, message_id: str) -> bool:
        """Cancel a message that was sent with ``delay`` or ``deliver_at``, in any process: nobody ever gets it.

        False when it was delivered or cancelled already, or there is none with this id; then nothing was done. Raises
        as :meth:`send`.
        """
        cancelled = self._cancel(message_id)
        if self._flusher is not None:
            self._flusher.wait_until_flushed(self._store.state.published_to)
        return cancelled

    def send_buffered(self, message: Message, sharding_key: str | None = None) -> None:
        """Take one message into the write buffer; it is stored within 200 ms, or when the buffer is full.

        This costs more than :meth:`send` and waits less: for the append lock, behind a slow disk or other senders, only
        when the buffer is full.

        **Until then it is lost when this process dies or ends without** :meth:`close`, and nobody can read it. That is
        at most ``write_buffer_bytes`` of records and, while commits succeed, what was sent in the last
        ``commit_interval_ms``. What a commit has stored is as safe as after :meth:`send`. Consecutive messages of one
        topic and ``sharding_key`` are stored as one batch, in one queue; none overtakes another. :meth:`send` does not
        wait for the buffer.

        Raises what :meth:`send` would raise for this message, at once, and what the last commit raised when it failed:
        this message was not taken then, and those in the buffer stay there until a commit succeeds. ValueError for a
        producer without a buffer.
        """
        buffer = self._open_buffer()
        if type(message.body) is not bytes:  # encoded now: the caller may change the object before it is stored
            message = Message(
                message.topic,
                encode_body(message.body),
                tags=message.tags,
                keys=message.keys,
                properties=message.properties,
                flag=message.flag,
            )
        buffer.add(message, sharding_key)

    def commit(self) -> int:
        """Store what is in the write buffer now; return how many messages that were. Raises as :meth:`send`.

        After an error those that were not stored are still in the buffer.
        """
        return self._open_buffer().commit()

    def create_topic(self, topic: str, queue_count: int) -> list[MessageQueue]:
        """Make a topic with 1 to 1,024 queues, or return the queues that it has.

        Raises InvalidName, ValueError, TableFull.
        """
        return self._store.topics.create(check_topic(topic), check_queue_count(queue_count))

    def close(self) -> None:
        """Store what is in the write buffer and leave the store. Closing twice does nothing.

        When the buffer cannot be stored now and may be later (StoreFull, StoreBusy), this raises and the producer stays
        open: call it again.
        """
        try:
            if self._buffer is not None:
                self._buffer.close()
        finally:
            if self._buffer is None or self._buffer.is_closed:
                self._append = self._append_batch = self._append_half = self._cancel = _closed
                if self._own_store:
                    self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_buffer(self) -> WriteBuffer:
        if self._append is _forked:
            _forked()
        if self._buffer is None:
            raise ValueError("this producer has no write buffer: make it with write_buffer_bytes=, such as 1 << 20")
        return self._buffer

    def _make_topic(self, topic: str) -> list[MessageQueue]:
        return self.create_topic(topic, self._queue_count)

    def leave_to_parent(self) -> None:
        """Refuse every send from now on: this is a forked child."""
        self._append = self._append_batch = self._append_half = self._cancel = _forked
        self._buffer = None  # the messages in it are the parent's


def _check_write_buffer(write_buffer_bytes: int, config: StoreConfig | None) -> None:
    if write_buffer_bytes < 0:
        raise ValueError(f"write_buffer_bytes={write_buffer_bytes}: must not be negative")
    if write_buffer_bytes and config is not None and config.durability is Durability.SYNC:
        raise ValueError(
            f"write_buffer_bytes={write_buffer_bytes} with Durability.SYNC: a buffer in memory cannot keep what that "
            "promises; give one of them"
        )


def check_queue_count(queue_count: int) -> int:
    """Return ``queue_count`` when a topic may have so many queues. Raises ValueError, TableFull."""
    if queue_count < 1:
        raise ValueError(f"queue_count={queue_count}: a topic has at least one queue")
    if queue_count > 1_024:
        raise TableFull(f"queue_count={queue_count}: a topic has at most 1,024 queues")
    return queue_count


def _closed(*_: object) -> NoReturn:
    raise StoreClosed("this producer was closed")


def _forked(*_: object) -> NoReturn:
    raise StoreClosed("this producer belongs to the process that this one was forked from: make one in this process")


_producers: weakref.WeakSet[Producer] = weakref.WeakSet()


def _after_fork() -> None:
    for producer in list(_producers):
        producer.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
