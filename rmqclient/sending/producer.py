"""Producer: sends messages to a store from one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, overload

from rmqclient.backend import Backend
from rmqclient.backend.futures import SendFuture
from rmqclient.backend.protocols import Buffer, ProducerSettings, Sender
from rmqclient.duration import Duration
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.names import PRODUCER_GROUP, check_group, check_queue_count, check_topic
from rmqclient.opening import Place, open_backend
from rmqclient.sending.arguments import (
    check_given,
    check_id,
    check_message,
    check_messages,
    check_middleware,
    check_write_buffer,
    meant,
    once_meant,
    refuse_two_keys,
    request_meant,
    window_of,
)
from rmqclient.sending.compressor import OVER_BYTES, Compressor, compressor_of
from rmqclient.sending.due_time import wait_of
from rmqclient.sending.middleware import SendMiddleware, SurroundedSender
from rmqclient.sending.reply import Replier
from rmqclient.sending.request import Requester, RequestFuture
from rmqclient.sending.sender import CLOSED, FORKED, CompressingSender
from rmqclient.store import Durability, MessageQueue, StoreConfig, fork
from rmqclient.store.bodies import Compression, check_level, compress
from rmqclient.store.closing import Closing
from rmqclient.store.errors import MessageRejected
from rmqclient.store.waiting.once import with_key
from rmqclient.tracing.observers import observers_of
from rmqclient.tracing.outgoing import ObservedSender


class Producer(Closing):
    """Sends messages; a context manager, and safe to share between the threads of one process.

    ``root`` is the directory of a store, an open store or a backend; a missing store is made. ``group`` names the
    producers of one application. With ``StoreConfig(durability=Durability.SYNC)``, a send returns when its message is
    on disk.

    ``write_buffer_bytes`` is the size of the buffer of :meth:`send_buffered` in this process; 0 makes no buffer.
    [transientStorePoolEnable]

    With a ``compression``, bodies of at least ``compress_over_bytes`` are stored compressed if that makes them smaller
    [compressMsgBodyOverHowmuch]. Readers get them as they were sent. ``compression_level`` is a level of that
    compression; the default is RocketMQ's. Raises NotInstalled if the package of the compression is missing.

    With ``message_trace``, RocketMQ's trace records of the sends go to the topic RMQ_SYS_TRACE_TOPIC, after the
    messages and without making a send wait or fail (docs/operate/traces.md). [enableMsgTrace]

    ``middleware`` surrounds each send (:mod:`rmqclient.sending.middleware`), the first outermost.

    A forked child must make its own producer: this one raises StoreClosed there.
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
        message_trace: bool = False,
        middleware: Sequence[SendMiddleware] = (),
    ) -> None:
        self.group = check_group(group)
        check_write_buffer(write_buffer_bytes, config)
        check_middleware(middleware)
        compressor = compressor_of(compression, compress_over_bytes, compression_level)
        self._backend = open_backend(root, config)
        try:
            settings = config or self._backend.limits
            check_write_buffer(write_buffer_bytes, settings)
            self._is_sync = settings.durability is Durability.SYNC
            self._queue_count = settings.default_queue_count
            self._max_opened_body_bytes = settings.max_opened_body_bytes
            self._observers = observers_of(self._backend)
            if message_trace:
                from rmqclient.tracing.message_trace import MessageTrace  # noqa: PLC0415 - most producers have none

                self._observers.insert(0, MessageTrace(self._backend, self.group))
            self._sender = self._wrapped(compressor, middleware)
            self._buffer: Buffer | None = self._sender.buffer(write_buffer_bytes) if write_buffer_bytes else None
        except BaseException:
            self._backend.close()
            raise
        self._requester = Requester(self._backend)
        self._replier = Replier(self._backend)
        fork.register(self)

    @overload
    def send(
        self,
        message: Message,
        key_of_queue: str | None = None,
        /,
        *,
        sharding_key: str | None = None,
        delay_level: int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> SendResult: ...

    @overload
    def send(
        self,
        topic: str,
        body: object,
        /,
        *,
        key: str | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        delay_level: int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> SendResult: ...

    def send(
        self,
        message: Any,
        second: Any = None,
        excess: Any = None,
        /,
        sharding_key: str | None = None,
        key: str | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        delay_level: int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> SendResult:
        """Store one message and return its offsets.

        ``send(Message("orders", body), sharding_key)`` sends a Message. ``send("orders", body)`` makes one, with the
        ``tags`` and ``properties``, and with one ``key``, by which it can be found again.

        Messages with the same ``sharding_key`` go to the same queue (SelectMessageQueueByHash). Messages without a key
        go to the queues in turn. The first message of a topic makes the topic. When this returns, the message survives
        ``kill -9`` of any process; with SYNC durability it survives a power cut, too.

        A ``delay_level`` of 1 to 18 delivers the message 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h
        after it was stored. Until then the message waits in ``SCHEDULE_TOPIC_XXXX``, and the result has its offset
        there. The housekeeper delivers it to the queue that is chosen now. If retention removes the file of a waiting
        message, the message is lost, as in RocketMQ.

        A ``delay``, a timedelta or seconds, or a ``deliver_at`` delivers the message at that time, up to ten years from
        now, by the clock of the host; on an idle host it is exact to the ms. The message waits in
        ``rmq_sys_wheel_timer``, where retention does not reach it, and :meth:`cancel` can cancel it. A time in the past
        means: deliver immediately.

        Raises ValueError for another ``delay_level``, a ``delay`` that is negative or too long, a ``deliver_at``
        without a time zone, or more than one of the three; TimerFull when 16 million messages wait; MessageRejected,
        InvalidName, StoreFull, StoreBusy, StorePoisoned, StoreClosed, LimitReached, DiskFailed, NotFlushed,
        StoreUnusable. Nothing was written unless the error's ``stored`` says so.
        """
        # Keyword-only in the overloads; positional here because keyword-only defaults cost a dict look-up each.
        if type(message) is Message and excess is None and key is None and tags is None and properties is None:
            if second is not None:
                sharding_key = second if sharding_key is None else refuse_two_keys(second, sharding_key)
        else:
            message, sharding_key = meant(message, second, excess, sharding_key, key, tags, properties)
        wait_level = due = 0
        if delay_level is not None or delay is not None or deliver_at is not None:  # few messages wait: spare a call
            wait_level, due = wait_of(delay_level, delay, deliver_at)
        append = self._sender.append  # CPython calls a local name faster than an attribute of an attribute
        try:
            result = append(message, sharding_key, wait_level, due)
        except TypeError:
            check_given(message)
            raise
        if self._is_sync:
            self._sender.wait_until_flushed(result.commit_log_end)
        return result

    @overload
    def send_async(
        self,
        message: Message,
        key_of_queue: str | None = None,
        /,
        *,
        sharding_key: str | None = None,
        delay_level: int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> SendFuture: ...

    @overload
    def send_async(
        self,
        topic: str,
        body: object,
        /,
        *,
        key: str | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        delay_level: int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> SendFuture: ...

    def send_async(
        self,
        message: Any,
        second: Any = None,
        excess: Any = None,
        /,
        sharding_key: str | None = None,
        key: str | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        delay_level: int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> SendFuture:
        """Send one message without waiting for a disk or a network; return a future, which can also be awaited.

        The future ends when :meth:`send` would return, with the same result or error, so ``await
        producer.send_async(m)`` does not block an event loop. Messages that one thread sends with one ``sharding_key``
        are stored in the order of the calls, unless one fails. In a store of this host the message is stored when this
        returns, and the future waits only for SYNC durability. Messages under way are kept in memory.

        Cancelling the future does not take the message back. Errors that are known at once are raised here; otherwise
        raises as :meth:`send`.
        """
        if type(message) is Message and excess is None and key is None and tags is None and properties is None:
            if second is not None:
                sharding_key = second if sharding_key is None else refuse_two_keys(second, sharding_key)
        else:
            message, sharding_key = meant(message, second, excess, sharding_key, key, tags, properties)
        wait_level, due = wait_of(delay_level, delay, deliver_at)
        try:
            return self._sender.append_async(message, sharding_key, wait_level, due)
        except TypeError:
            check_given(message)
            raise

    def send_once(
        self,
        message: Message | str,
        second: Any = None,
        /,
        key: str | None = None,
        *,
        within: Duration | None = None,
        sharding_key: str | None = None,
        delay_level: int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> SendResult:
        """Store one message as :meth:`send` does, unless a message was sent to its topic with this ``key`` before.

        ``send_once(message, key)`` sends a Message, ``send_once(topic, body, key=...)`` makes one.

        In that case the result's ``is_duplicate`` is true, and the result gives the place and the id of the earlier
        message. If any number of senders in any processes use one key, exactly one message is stored, even if senders
        are killed. A message that a power cut takes can be sent again. With SYNC durability the message is on disk when
        this returns, even if another process sent it.

        ``within``, a timedelta or seconds, limits how long ago the earlier message was sent; None looks through the
        whole log. ``key`` is up to 255 bytes of printable characters without a space. It becomes the last of the
        message's keys, with ``once-`` in front. Only messages sent by this method count.

        Raises as :meth:`send`; ValueError if ``within`` is not positive or exceeds ``file_reserved_hours``;
        MessageRejected for an invalid key; StoreBusy also while a sender that holds the same lock, one of 1,024 for all
        keys, is stopped half way; StoreCorrupt for an index file of the wrong size.
        """
        self._sender.check_usable()
        message, key = once_meant(message, second, key)
        wait_level, due = wait_of(delay_level, delay, deliver_at)
        window = window_of(within, self._backend.limits.file_reserved_hours)
        result = self._sender.append_once(with_key(message, key), key, window, sharding_key, wait_level, due)
        if self._is_sync:
            self._sender.wait_until_flushed(result.commit_log_end)
        return result

    def send_batch(
        self,
        messages: Sequence[Message],
        sharding_key: str | None = None,
        *,
        delay_level: int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        compression: Compression | None = None,
        level: int | None = None,
    ) -> list[SendResult]:
        """Store messages of one topic in one queue, in order, all of them or none. Raises as :meth:`send`.

        With a delay, all messages wait or none does. They are due together, and are delivered one by one in their
        order. RocketMQ refuses delayed batches.

        With ``compression``, the messages are stored as one record that is compressed as a whole and that consumers
        open. Each message keeps its id, keys and properties, and is acknowledged and retried by itself; all have the
        place of the record. Such a batch needs one tag, no delay, and a topic that is not compact: otherwise
        MessageRejected. ``level`` is a level of the compression. Raises BatchTooLarge and NotInstalled, too. See
        docs/guide/batches.md.
        """
        check_messages(messages)
        wait_level, due = wait_of(delay_level, delay, deliver_at)
        if compression is None and level is not None:
            raise ValueError(f"level={level!r} without a compression: give one, as compression=Compression.ZSTD")
        if compression is None:
            append_batch = self._sender.append_batch
            results = append_batch(messages, sharding_key, wait_level, due)
        elif wait_level or due:
            raise MessageRejected(
                f"delay_level={delay_level}, delay={delay}, deliver_at={deliver_at}: a compressed batch cannot wait, "
                "because delayed messages are delivered one by one: send it without a delay"
            )
        else:
            results = self._append_compressed(messages, sharding_key, compression, level)
        if self._is_sync and results:
            self._sender.wait_until_flushed(results[-1].commit_log_end)
        return results

    def cancel(self, message_id: str) -> bool:
        """Cancel a message that any process sent with ``delay`` or ``deliver_at``: no consumer ever gets it.

        Returns False and does nothing if the message was delivered or cancelled before, even if it now waits for a
        retry, or if no message has this id. Raises as :meth:`send`.
        """
        check_id(message_id)
        cancelled = self._sender.cancel(message_id)
        if self._is_sync:
            self._sender.wait_until_flushed()
        return cancelled

    def signal(self, message_id: str, name: str, payload: object = None, *, group: str) -> bool:
        """Send a signal to a message of a group, whose handler waits for it by ``step.wait_for(name)``, now or later.

        ``message_id`` is that of the message, and ``wait_for`` returns ``payload``, which is encoded as a body. The
        first signal of a name counts. Returns whether the message was waiting and is delivered now; if the handler
        waits later, ``wait_for`` returns at once. The signal is as durable as a sent message.

        Raises StepError if no message has the id, StepRejected for a name or a payload that cannot be stored,
        NotOnCluster, InvalidName, and as :meth:`send`.
        """
        from rmqclient.steps.journal import signal  # noqa: PLC0415 - most producers do not need it

        check_id(message_id)
        return signal(self._backend, group, message_id, name, payload)

    def send_buffered(
        self,
        message: Message | str,
        second: Any = None,
        /,
        sharding_key: str | None = None,
        *,
        key: str | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Put one message into the write buffer. It is stored within 200 ms, or when the buffer is full.

        ``send_buffered(message, sharding_key)`` sends a Message, ``send_buffered(topic, body)`` makes one, as
        :meth:`send` does.

        This costs more CPU than :meth:`send` and waits less: only a full buffer waits for the append lock, which a slow
        disk or another sender may hold.

        **A message in the buffer is lost when this process dies or ends without** :meth:`close`, and no consumer can
        read it. At most ``write_buffer_bytes`` of records can be lost; while the buffer can be stored, at most the
        messages of the last ``commit_interval_ms``. Once :meth:`flush` returns, the messages are as safe as after
        :meth:`send`. Consecutive messages of one topic and ``sharding_key`` are stored as one batch in one queue.
        Messages of the buffer never overtake each other, but :meth:`send` does not wait for the buffer.

        Raises as :meth:`send` for this message, and the error of the last flush if that failed: then this message was
        not taken, and those in the buffer stay there until a flush succeeds. ValueError for a producer without a
        buffer.
        """
        buffer = self._open_buffer()
        message, sharding_key = meant(message, second, None, sharding_key, key, tags, properties)
        check_message(message, "send_buffered")
        encoded = self._sender.encoded(message)  # now, because the caller may change the body before it is stored
        buffer.add(encoded, sharding_key)

    def flush(self) -> int:
        """Store the messages of the write buffer now; return their number. Raises as :meth:`send`.

        After an error the messages that were not stored are still in the buffer. ValueError for a producer without a
        buffer.
        """
        return self._open_buffer().flush()

    def request(
        self, message: Message | str, second: Any = None, /, timeout: Any = None, sharding_key: str | None = None
    ) -> ReceivedMessage:
        """Send a message, wait for the reply to it, and return that (DefaultMQProducer.request).

        ``request(message, timeout)`` sends a Message, ``request(topic, body, timeout=...)`` makes one. ``timeout`` is a
        timedelta, or seconds, above 0. A handler with ``replies=True`` sends the reply, or
        :meth:`send_reply` does. The first of several replies counts; a late reply is dropped. If the handler raises, no
        reply is sent, and the message is retried like any other, possibly after the timeout.

        Raises RequestTimeout, which is a TimeoutError, and what :meth:`send` raises; ValueError for the timeout.
        """
        message, timeout, sharding_key = request_meant(message, second, timeout, sharding_key)
        return self._requester.ask(self.send, message, sharding_key, timeout)

    def request_async(
        self, message: Message | str, second: Any = None, /, timeout: Any = None, sharding_key: str | None = None
    ) -> RequestFuture:
        """Send a message and return a future of its reply, which can also be awaited.

        The future ends as :meth:`request` would. Errors of the send are raised here.
        """
        message, timeout, sharding_key = request_meant(message, second, timeout, sharding_key)
        return self._requester.request(self.send, message, sharding_key, timeout)

    def send_reply(self, request: ReceivedMessage, body: object) -> None:
        """Send the reply to a request, which this or any other process received.

        A reply does not wait for a flush, even with SYNC durability. Raises MessageRejected if ``request`` is not a
        request, and as :meth:`send`.
        """
        if not isinstance(request, ReceivedMessage):
            raise TypeError(f"send_reply takes the request, as a handler received it, not {type(request).__name__}")
        self._replier.send(request, body)

    def create_topic(self, topic: str, queue_count: int, *, cleanup_policy: str | None = None) -> list[MessageQueue]:
        """Make a topic with 1 to 1,024 queues, or return the queues that it has.

        With ``cleanup_policy="compact"``, retention keeps the latest message of each key. The key is the first of
        ``keys``, and an empty body deletes it (docs/guide/compaction.md). Every message of such a topic needs a key,
        which chooses its queue; if you set a ``sharding_key``, use the same one for all messages of a key. None means
        ``"delete"`` for a new topic.

        Raises InvalidName, ValueError, TableFull, and ConfigMismatch if the topic was made with the other policy.
        """
        return self._backend.topics.create(check_topic(topic), check_queue_count(queue_count), cleanup_policy)

    def close(self) -> None:
        """Store the messages of the write buffer, wait for :meth:`send_async`, and leave. Closing twice does nothing.

        If the buffer cannot be stored now but may be later (StoreFull, StoreBusy), this raises and the producer stays
        open: call it again.
        """
        try:
            if self._buffer is not None:
                self._buffer.close()
        finally:
            if self._buffer is None or self._buffer.is_closed:
                sender, self._sender = self._sender, CLOSED
                sender.close()
                self._requester.close()
                for observer in self._observers:
                    observer.close()
                self._backend.close()

    def _wrapped(self, compressor: Compressor | None, middleware: Sequence[SendMiddleware]) -> Sender:
        """Return the backend's sender with this producer's compressor, observers and middleware around it."""
        sender = self._backend.producers.sender(self._settings())
        if compressor is not None:
            sender = CompressingSender(sender, compressor, self._backend.limits.max_body_bytes)
        for observer in self._observers:
            sender = ObservedSender(sender, observer)
        return SurroundedSender(sender, middleware) if middleware else sender

    def _settings(self) -> ProducerSettings:
        make_topic = partial(_make_topic, self._backend, self._queue_count)  # a bound method would be a reference cycle
        return ProducerSettings(make_topic, self.group, durable=self._is_sync, prepare=not self._is_sync)

    def _open_buffer(self) -> Buffer:
        self._sender.check_usable()
        if self._buffer is None:
            raise ValueError("this producer has no write buffer: make it with write_buffer_bytes=, such as 1 << 20")
        return self._buffer

    def _append_compressed(
        self, messages: Sequence[Message], sharding_key: str | None, compression: Compression, level: int | None
    ) -> list[SendResult]:
        check_level("level", compression, level)

        def pack(content: bytes) -> tuple[bytes, int]:
            return compress(content, compression, level), compression.value

        return self._sender.append_inner_batch(messages, pack, sharding_key, most_bytes=self._max_opened_body_bytes)

    def leave_to_parent(self) -> None:
        """In a forked child: refuse every send from now on."""
        self._sender = FORKED
        self._buffer = None  # the messages in it are the parent's
        self._requester = Requester(self._backend)  # the old one's listener is in the parent
        self._observers = []  # their threads are in the parent, too


def _make_topic(backend: Backend, queue_count: int, topic: str) -> list[MessageQueue]:
    return backend.topics.create(check_topic(topic), check_queue_count(queue_count), None)
