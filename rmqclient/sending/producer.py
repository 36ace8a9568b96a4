"""Producer: sends messages to a store from one process."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from rmqclient.backend import Place, open_backend
from rmqclient.backend.protocols import Buffer, Sender
from rmqclient.duration import Duration, to_seconds
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.names import PRODUCER_GROUP, check_group, check_topic
from rmqclient.sending.compressor import OVER_BYTES, Compressor
from rmqclient.sending.due_time import due_ms
from rmqclient.sending.reply import Replier
from rmqclient.sending.request import Requester, RequestFuture
from rmqclient.sending.sender import CLOSED, FORKED, CompressingSender
from rmqclient.store import Durability, MessageQueue, StoreConfig, fork
from rmqclient.store.bodies import Compression, compress
from rmqclient.store.errors import MessageRejected, TableFull
from rmqclient.store.waiting.once import with_key


class Producer:
    """Sends messages; a context manager, and safe to share between the threads of one process.

    ``root`` is the directory of a store, made when it is missing, or an open store. ``group`` names the producers of
    one application. With ``StoreConfig(durability=Durability.SYNC)`` a send returns when its message is on the disk.

    ``write_buffer_bytes`` gives :meth:`send_buffered` a buffer in this process [transientStorePoolEnable]; 0 for none.

    With a ``compression`` bodies of ``compress_over_bytes`` and more are stored compressed, where that makes them
    smaller [compressMsgBodyOverHowmuch]; whoever reads them gets them as they were sent. ``compression_level`` is that
    of the compression, by default RocketMQ's. Raises NotInstalled when its package is missing.

    After a fork the child must make its own; this one raises StoreClosed there.
    """

    def __init__(
        self,
        root: Place,
        *,
        group: str = PRODUCER_GROUP,
        config: StoreConfig | None = None,
        write_buffer_bytes: int = 0,
        compression: Compression | None = None,
        compress_over_bytes: int = OVER_BYTES,
        compression_level: int | None = None,
    ) -> None:
        self.group = check_group(group)
        _check_write_buffer(write_buffer_bytes, config)
        compressor = None if compression is None else Compressor(compression, compress_over_bytes, compression_level)
        self._backend = open_backend(root, config)
        settings = config or self._backend.config
        try:
            _check_write_buffer(write_buffer_bytes, settings)
        except ValueError:
            self._backend.close()
            raise
        self._is_sync = settings.durability is Durability.SYNC
        self._queue_count = settings.default_queue_count
        self._max_opened_body_bytes = settings.max_opened_body_bytes
        self._sender: Sender = self._backend.sender(self._make_topic, prepare=not self._is_sync)
        if compressor is not None:
            self._sender = CompressingSender(self._sender, compressor, self._backend.config.max_body_bytes)
        self._buffer: Buffer | None = self._sender.buffer(write_buffer_bytes) if write_buffer_bytes else None
        self._requester = Requester(self._backend)
        self._replier = Replier(self._backend)
        fork.register(self)

    def send(
        self,
        message: Message,
        sharding_key: str | None = None,
        *,
        delay_level: int = 0,
        delay: Duration | None = None,
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

        With a ``delay``, a timedelta or seconds, or a ``deliver_at``, the message is delivered at that time by the
        clock of the host; to the ms when it is idle, and up to ten years from now. It waits in ``rmq_sys_wheel_timer``,
        through retention too, and can be cancelled: :meth:`cancel`. A time in the past means: deliver immediately.

        Raises ValueError for another ``delay_level``, a negative or longer ``delay``, a ``deliver_at`` without a time
        zone, or more than one of them; TimerFull when 16 million messages wait; MessageRejected, InvalidName,
        StoreFull, StoreBusy, StorePoisoned, StoreClosed, LimitReached, DiskFailed, NotFlushed, StoreUnusable; nothing
        was written unless the error's ``stored`` says so.
        """
        due = due_ms(delay_level, delay, deliver_at) if delay is not None or deliver_at is not None else 0
        result = self._sender.append(message, sharding_key, delay_level, due)
        if self._is_sync:
            self._sender.wait_until_flushed(result.commit_log_end)
        return result

    def send_once(
        self,
        message: Message,
        key: str,
        *,
        within: Duration | None = None,
        sharding_key: str | None = None,
        delay_level: int = 0,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> SendResult:
        """Store one message as :meth:`send` does, unless one was sent to its topic with this ``key`` before.

        Then the result's ``is_duplicate`` is true, and it tells where that message stands, with its message id. Of any
        number of senders with one key, in any processes, killed when they may be, one stores its message; what a power
        cut takes is sent again. With SYNC durability the message is on the disk when this returns, whoever sent it.

        ``within``, a timedelta or seconds, is how long ago the other one may have been sent; None looks as far back as
        the log goes. ``key`` is
        up to 255 bytes without a space or anything unprintable. It becomes the last of the message's keys, with
        ``once-`` in front. Only sends by this method count.

        Raises as :meth:`send`; ValueError for a window that is not positive or longer than ``file_reserved_hours``;
        MessageRejected for a key that cannot be one; StoreBusy also while another sender with this key, or with one of
        a thousandth of the others, is stopped in the middle of it; StoreCorrupt for an index file of another size.
        """
        self._sender.check_usable()
        due = due_ms(delay_level, delay, deliver_at)
        window = _window(within, self._backend.config)
        result = self._sender.append_once(with_key(message, key), key, window, sharding_key, delay_level, due)
        if self._is_sync:
            self._sender.wait_until_flushed(result.commit_log_end)
        return result

    def send_batch(
        self,
        messages: Sequence[Message],
        sharding_key: str | None = None,
        *,
        delay_level: int = 0,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        compression: Compression | None = None,
        level: int | None = None,
    ) -> list[SendResult]:
        """Store messages of one topic in one queue, in order, all of them or none. Raises as :meth:`send`.

        With a delay of either kind all of them wait, or none; they are due together, and delivered one by one in order.
        RocketMQ refuses delayed batches.

        With ``compression`` they are stored, and handed on, as one record that is compressed as a whole; consumers open
        it. Each keeps its id, keys, properties and its own fate, but all have the place of the record and the same
        tag, they cannot wait, and the topic is not compact: MessageRejected says so. ``level`` is that of the
        compression. Raises also BatchTooLarge, NotInstalled. See docs/guide/batches.md.
        """
        due = due_ms(delay_level, delay, deliver_at) if delay is not None or deliver_at is not None else 0
        if compression is None:
            results = self._sender.append_batch(messages, sharding_key, delay_level, due)
        elif delay_level or due:
            raise MessageRejected(
                f"delay_level={delay_level}, delay={delay}, deliver_at={deliver_at}: a compressed batch cannot wait, "
                "because what is late is delivered message by message: send it without one of them"
            )
        else:
            results = self._append_compressed(messages, sharding_key, compression, level)
        if self._is_sync and results:
            self._sender.wait_until_flushed(results[-1].commit_log_end)
        return results

    def cancel(self, message_id: str) -> bool:
        """Cancel a message that was sent with ``delay`` or ``deliver_at``, in any process: nobody ever gets it.

        False if it was delivered or cancelled before, even if it now waits for a retry, or if no message has this id;
        then nothing was done. Raises as :meth:`send`.
        """
        cancelled = self._sender.cancel(message_id)
        if self._is_sync:
            self._sender.wait_until_flushed()
        return cancelled

    def send_buffered(self, message: Message, sharding_key: str | None = None) -> None:
        """Take one message into the write buffer; it is stored within 200 ms, or when the buffer is full.

        This costs more than :meth:`send` and waits less: for the append lock, behind a slow disk or other senders, only
        when the buffer is full.

        **Until then it is lost when this process dies or ends without** :meth:`close`, and nobody can read it. That is
        at most ``write_buffer_bytes`` of records and, while the buffer can be stored, the messages of the last
        ``commit_interval_ms``. Once :meth:`flush` returns, they are as safe as after :meth:`send`. Consecutive messages
        of one topic and ``sharding_key`` are stored as one batch, in one queue; none overtakes another. :meth:`send`
        does not wait for the buffer.

        Raises at once what :meth:`send` would raise for this message, and what the last flush raised if it failed: then
        this message was not taken, and those in the buffer stay there until a flush succeeds. ValueError for a producer
        without a buffer.
        """
        buffer = self._open_buffer()
        buffer.add(
            self._sender.encoded(message), sharding_key
        )  # now: the caller may change the body before it is stored

    def flush(self) -> int:
        """Store the messages of the write buffer now; return how many they were. Raises as :meth:`send`.

        After an error the messages that were not stored are still in the buffer. ValueError for a producer without a
        buffer.
        """
        return self._open_buffer().flush()

    def request(self, message: Message, timeout: Duration, sharding_key: str | None = None) -> ReceivedMessage:
        """Send a message, wait for the reply to it, and return that (DefaultMQProducer.request).

        ``timeout`` is a timedelta, or seconds, above 0. The reply comes from a handler with ``replies=True``, or from
        :meth:`send_reply`; of several the first one counts, and one that comes late is dropped. A handler that raises
        sends none: the message is retried as any other is, within the time or after it.

        Raises RequestTimeout, which is a TimeoutError, and what :meth:`send` raises; ValueError for the timeout.
        """
        return self.request_async(message, timeout, sharding_key).result()

    def request_async(self, message: Message, timeout: Duration, sharding_key: str | None = None) -> RequestFuture:
        """Send a message and return the reply to come, a future, which ``await`` takes, too.

        Its result is what :meth:`request` returns or raises; what :meth:`send` raises is raised here.
        """
        return self._requester.request(self.send, message, sharding_key, timeout)

    def send_reply(self, request: ReceivedMessage, body: object) -> None:
        """Send the reply to a request, wherever that was received. It waits for no flush, with SYNC durability either.

        Raises MessageRejected for a message that is no request, and what :meth:`send` raises.
        """
        self._replier.send(request, body)

    def create_topic(self, topic: str, queue_count: int, *, cleanup_policy: str | None = None) -> list[MessageQueue]:
        """Make a topic with 1 to 1,024 queues, or return the queues that it has.

        With ``cleanup_policy="compact"`` the latest message of each key, the first of ``keys``, outlives retention, and
        an empty body deletes its key (docs/guide/compaction.md). Each message must have a key then, which chooses its
        queue; a ``sharding_key`` in its place must be the same for all messages of a key. None is ``"delete"`` for a
        new one.

        Raises InvalidName, ValueError, TableFull, ConfigMismatch when it was made with the other policy.
        """
        return self._backend.create_topic(check_topic(topic), check_queue_count(queue_count), cleanup_policy)

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
                self._sender = CLOSED
                self._requester.close()
                self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_buffer(self) -> Buffer:
        self._sender.check_usable()
        if self._buffer is None:
            raise ValueError("this producer has no write buffer: make it with write_buffer_bytes=, such as 1 << 20")
        return self._buffer

    def _append_compressed(
        self, messages: Sequence[Message], sharding_key: str | None, compression: Compression, level: int | None
    ) -> list[SendResult]:
        def pack(content: bytes) -> tuple[bytes, int]:
            return compress(content, compression, level), compression.value

        return self._sender.append_inner_batch(messages, pack, sharding_key, most_bytes=self._max_opened_body_bytes)

    def _make_topic(self, topic: str) -> list[MessageQueue]:
        return self.create_topic(topic, self._queue_count)

    def leave_to_parent(self) -> None:
        """Refuse every send from now on: this is a forked child."""
        self._sender = FORKED
        self._buffer = None  # the messages in it are the parent's
        self._requester = Requester(self._backend)  # whose thread is the parent's


def _check_write_buffer(write_buffer_bytes: int, config: StoreConfig | None) -> None:
    if write_buffer_bytes < 0:
        raise ValueError(f"write_buffer_bytes={write_buffer_bytes}: must not be negative")
    if write_buffer_bytes and config is not None and config.durability is Durability.SYNC:
        raise ValueError(
            f"write_buffer_bytes={write_buffer_bytes} with Durability.SYNC: a buffer in memory cannot keep what that "
            "promises; give one of them"
        )


def _window(within: Duration | None, config: StoreConfig) -> timedelta | None:
    """Return ``within`` as a timedelta.

    Raises ValueError if it is not positive or exceeds the retention time, TypeError for anything except a duration.
    """
    if within is None:
        return None
    seconds, reserved = to_seconds("within", within), timedelta(hours=config.retention.file_reserved_hours)
    if not 0 < seconds <= reserved.total_seconds():
        raise ValueError(
            f"within={within!r}: a window is positive and at most {config.retention.file_reserved_hours} hours, for "
            "which the store keeps messages (file_reserved_hours); None looks at all that it has"
        )
    return timedelta(seconds=seconds)


def check_queue_count(queue_count: int) -> int:
    """Return ``queue_count`` when a topic may have so many queues. Raises ValueError, TableFull."""
    if queue_count < 1:
        raise ValueError(f"queue_count={queue_count}: a topic has at least one queue")
    if queue_count > 1_024:
        raise TableFull(f"queue_count={queue_count}: a topic has at most 1,024 queues")
    return queue_count
