"""Appends: the only place that stores what came over the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


class Appends:
    """Appends to one store; for any thread. Errors are those of an append."""

    def __init__(self, store: MessageStore, open_topic: Callable[[str], list[MessageQueue]]) -> None:
        self._store = store
        self._appender = store.appender(open_topic, encode_body)

    def append(self, message: Incoming, wait: Wait = NO_WAIT, *, is_half: bool = False) -> SendResult:
        """Append a message to its queue, to where it waits, or as the half message of a transaction."""
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

    def append_batch(self, batch: Incoming) -> Sequence[SendResult]:
        """Append all messages in the body of a batch or none. Each gets the properties of the batch, but not its id."""
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
        """Append a stored message again, elsewhere, as one that was tried once more."""
        return self._appender.append_copy(
            message,
            topic,
            queue_id,
            properties,
            reconsume_times=message.reconsume_times + 1,
            delay_level=delay_level,
        )

    def cancel(self, message_id: str) -> bool:
        """Cancel a message that waits for its time; False when it does not wait."""
        return self._store.timer.cancel(message_id, self._appender)
