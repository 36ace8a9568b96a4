"""Local sender: appends messages to a store of this host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final

from rmqclient.backend.futures import SendFuture
from rmqclient.codecs import encode_body, encoded
from rmqclient.local.flushes import Flushes
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.store import Appender, Durability, MessageQueue, MessageStore, layout
from rmqclient.store.append.admission import Later
from rmqclient.store.append.replicas import told
from rmqclient.store.append.write_buffer import BATCH_BYTES, BATCH_MESSAGES, WriteBuffer

_RESTRICTED: Final = layout.RUNTIME_HEADER.at["restricted"]


class LocalSender:
    """The open form of a sender. Its appends are the bound methods of the compiled appender.

    Arguments are those of :class:`rmqclient.backend.protocols.ProducerSettings`.
    """

    def __init__(
        self, store: MessageStore, make_topic: Callable[[str], list[MessageQueue]], *, prepare: bool = False
    ) -> None:
        appender = store.appenders.make(make_topic, encode_body, prepare=prepare)
        self._store = store
        self._make_topic = make_topic
        self._patient: Appender | None = None
        """Does not wait for replicas."""
        self._load = store.state.words.load
        self._appender = appender
        self.check_usable = store.life.check_usable
        self.encoded = encoded
        self.append = appender.append
        self.append_batch = appender.append_batch
        self.append_inner_batch = appender.append_inner_batch
        self.append_half = appender.append_half
        self._is_sync = store.config.durability is Durability.SYNC
        self._flushes = Flushes(partial(_settle, store))

    def append_async(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendFuture:
        """Append a message now; the future ends when it is at replicas and, with SYNC durability, on disk."""
        are_replicas_waited_for = self._load(_RESTRICTED)
        append = self._patient_append if are_replicas_waited_for else self.append
        future, result = SendFuture(), append(message, sharding_key, delay_level, due_ms)
        if self._is_sync or are_replicas_waited_for:
            self._flushes.add(result, future)
        else:
            future.end(result)
        return future

    def append_copy(
        self,
        message: ReceivedMessage,
        queue: MessageQueue,
        properties: Mapping[str, str],
        *,
        reconsume_times: int,
        delay_level: int = 0,
        due_ms: int = 0,
    ) -> SendResult:
        """Append a copy of a received message to a queue, with exactly these properties."""
        return self._appender.append_copy(
            message,
            queue.topic,
            queue.queue_id,
            properties,
            reconsume_times=reconsume_times,
            delay_level=delay_level,
            due_ms=due_ms,
        )

    def append_once(
        self,
        message: Message,
        key: str,
        within: timedelta | None,
        sharding_key: str | None,
        delay_level: int,
        due_ms: int,
    ) -> SendResult:
        """Append a message, which already has the key, unless one was appended with this key before.

        Raises as an append; StoreBusy also while another sender that holds the same lock, one of 1,024 for all keys,
        is stopped half way; StoreCorrupt for an index file of the wrong size.
        """
        once = self._store.once
        with once.alone(message.topic, key):
            found = once.find(message.topic, key, within)
            if found is None:
                return self.append(message, sharding_key, delay_level, due_ms)
        return told(found, self._store.replicas.settle(found.commit_log_end))

    def cancel(self, message_id: str) -> bool:
        """Cancel a timer message. False if it does not wait."""
        return self._store.timer.cancel(message_id, appender=self._appender)

    def deliver_early(self, message: ReceivedMessage) -> SendResult | None:
        """Deliver a timer message before its time; None if it no longer waits."""
        return self._store.timer.deliver_early(message, appender=self._appender)

    def wait_until_flushed(self, commit_log_end: int | None = None) -> None:
        """Wait until the log is on disk up to an offset; None for its end. Raises NotFlushed, StorePoisoned."""
        end = self._store.state.published_to if commit_log_end is None else commit_log_end
        self._store.flusher.wait_until_flushed(end)

    def _patient_append(self, message: Message, sharding_key: str | None, delay_level: int, due_ms: int) -> SendResult:
        if self._patient is None:
            self._patient = self._store.appenders.make(self._make_topic, encode_body, prepare=False, admission=Later)
        return self._patient.append(message, sharding_key, delay_level, due_ms)

    def buffer(self, limit_bytes: int) -> WriteBuffer:
        """Return a buffer of this process, with ``limit_bytes`` of messages at most."""
        config = self._store.config
        return WriteBuffer(
            self._appender,
            limit_bytes,
            commit_interval_ms=config.commit_interval_ms,
            batch_messages=min(config.consume_queue_file_entries, BATCH_MESSAGES),
            batch_bytes=min(config.commit_log_file_bytes - layout.BLANK_RECORD.size, BATCH_BYTES),
        )

    def close(self) -> None:
        """Wait for every :meth:`append_async`. Closing twice does nothing."""
        self._flushes.close()
        self._store.appenders.end(self._appender)


def _settle(store: MessageStore, end: int) -> bool | None:
    """Wait for the disk and replicas, as configured. Raises NotFlushed, StorePoisoned, NotReplicated."""
    if store.config.durability is Durability.SYNC:
        store.flusher.wait_until_flushed(end)
    return store.replicas.settle(end)
