"""Appends: all appends of messages from the network.

An append waits a second at most for the lock that all processes of the store share, and the event loop waits with it.
That happens if a process is stopped in the middle of an append. After that, appends fail at once until the process has
released the lock, so that other requests are answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rmqclient.broker.address import Address
from rmqclient.broker.sending.hosts import packed
from rmqclient.broker.sending.incoming import Incoming, text_of
from rmqclient.broker.sending.waits import NO_WAIT, Wait
from rmqclient.codecs import encode_body
from rmqclient.store import (
    MessageQueue,
    MessageStore,
    ReceivedMessage,
    SendResult,
    append_received,
    append_received_batch,
)
from rmqclient.store.append.admission import Later
from rmqclient.store.errors import PageCacheBusy, StoreBusy


class Appends:
    """Appends to one store. For any thread. Raises the errors of an append."""

    def __init__(self, store: MessageStore, open_topic: Callable[[str], list[MessageQueue]]) -> None:
        self._store = store
        self._state = store.state
        self._appender = store.appenders.make(open_topic, encode_body, admission=Later)
        self._stuck: tuple[int, int] | None = None
        """The thread that held the lock too long, and the log's end at that time; None while appends succeed."""

    def append(self, message: Incoming, wait: Wait = NO_WAIT, *, is_half: bool = False) -> SendResult:
        """Append a message to its queue, as a timer message, or as a transaction's half message."""
        with self._noticing():
            return append_received(
                self._appender,
                message.topic,
                message.queue_id,
                message.body,
                text_of(message.properties),
                flag=message.flag,
                sys_flag=message.sys_flag,
                born_timestamp=message.born_ms,
                born_host=packed(message.born_host),
                store_host=packed(message.store_host),
                reconsume_times=message.reconsume_times,
                delay_level=wait.level,
                due_ms=wait.due_ms,
                half=is_half,
            )

    def append_plain(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: str,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: Address,
        store_host: Address,
    ) -> SendResult:
        """Append a message without a delay; ``properties`` are in the form of the record."""
        if self._stuck is not None:
            self._refuse_while_stuck(self._stuck)
        try:
            return append_received(
                self._appender,
                topic,
                queue_id,
                body,
                properties,
                flag=flag,
                sys_flag=sys_flag,
                born_timestamp=born_ms,
                born_host=packed(born_host),
                store_host=packed(store_host),
            )
        except StoreBusy:
            self._stuck = self._holder()
            raise

    def append_batch(self, batch: Incoming) -> Sequence[SendResult]:
        """Append all messages of a batch, or none. Each gets the properties of the batch, but not its id."""
        with self._noticing():
            return append_received_batch(
                self._appender,
                batch.topic,
                batch.queue_id,
                batch.body,
                text_of(batch.properties),
                sys_flag=batch.sys_flag,
                born_timestamp=batch.born_ms,
                born_host=packed(batch.born_host),
                store_host=packed(batch.store_host),
                reconsume_times=batch.reconsume_times,
            )

    def append_copy(
        self, message: ReceivedMessage, topic: str, queue_id: int, properties: dict[str, str], delay_level: int = 0
    ) -> SendResult:
        """Append a copy of a stored message to another topic, with its attempts increased by one."""
        with self._noticing():
            return self._appender.append_copy(
                message,
                topic,
                queue_id,
                properties,
                reconsume_times=message.reconsume_times + 1,
                delay_level=delay_level,
            )

    def cancel(self, message_id: str, topic: str) -> bool:
        """Cancel a timer message for a topic; False if it does not wait."""
        return self._store.timer.cancel(message_id, self._appender, topic)

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """Note the holder of the lock after a time-out; refuse at once while it has not changed."""
        if self._stuck is not None:
            self._refuse_while_stuck(self._stuck)
        try:
            yield
        except StoreBusy:
            self._stuck = self._holder()
            raise

    def _refuse_while_stuck(self, before: tuple[int, int]) -> None:
        if before == self._holder():
            process = self._state.append_mutex.process
            raise PageCacheBusy(f"process {process} still keeps the append lock; nothing was written")
        self._stuck = None

    def _holder(self) -> tuple[int, int]:
        return self._state.append_mutex.owner, self._state.published_to
