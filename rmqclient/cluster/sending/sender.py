"""Sender: the sender of a cluster's producer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from rmqclient.backend.futures import SendFuture
from rmqclient.backend.limits import Limits
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.sending import copies
from rmqclient.cluster.sending.batches import Part, parts_of, topic_of
from rmqclient.cluster.sending.delays import Delays
from rmqclient.cluster.sending.delivery import Delivery, Send
from rmqclient.cluster.sending.producer_groups import ProducerGroups
from rmqclient.cluster.sending.queue_choice import QueueChoice
from rmqclient.cluster.sending.send_requests import PREPARED
from rmqclient.cluster.sending.sends import Sends
from rmqclient.errors import BatchStoredInPart, NotOnCluster, QueueError
from rmqclient.message import Message, MessageQueue, ReceivedMessage, SendResult
from rmqclient.store.append.write_buffer import WriteBuffer


class ClusterSender:
    """Sends the messages of one producer of ``group``. Safe for threads."""

    def __init__(self, client: ClusterClient, groups: ProducerGroups, group: str, limits: Limits) -> None:
        wire_group = client.url.wrap(group)
        choice = QueueChoice(client)
        self._url = client.url
        self._max_body_bytes = limits.max_body_bytes
        self._delivery = Delivery(client, choice)
        self._delays = Delays(client, choice)
        self._sends = sends = Sends(self._url, wire_group, self._delays, limits)
        self._extra, self._single, self.encoded = sends.added, sends.single, sends.encoded
        self._leave = groups.join(wire_group)
        self.check_usable = client.check_usable

    def append(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendResult:
        """Send a message and wait for the answer. Raises NotOnCluster for a time that the brokers cannot keep."""
        extra = self._extra(message.topic, sharding_key, delay_level, due_ms)
        return self._delivery.send(self._single(message, sharding_key, extra))[0]

    def append_async(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendFuture:
        """Send a message; the future gets the result. Raises ProducerFull, see :mod:`.under_way`.

        Brokers store with several threads, so two messages under way at once may be stored in either order, even with
        one sharding key.
        """
        future = SendFuture()
        extra = self._extra(message.topic, sharding_key, delay_level, due_ms)
        self._delivery.send_async(self._single(message, sharding_key, extra), future.end)
        return future

    def append_batch(
        self, messages: Sequence[Message], sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> list[SendResult]:
        """Send messages of one topic to one queue, in order, by several requests if they are too long for one.

        Raises NotOnCluster for a delay, BatchStoredInPart if some requests succeeded and a later one failed.
        """
        if delay_level or due_ms:
            raise NotOnCluster("brokers refuse a batch that waits: send its messages one by one, each with the delay")
        if not messages:
            return []
        topic = topic_of(messages)
        ready = [self.encoded(message) for message in messages]
        extras = [self._extra(topic, sharding_key) for _ in ready]
        parts = list(parts_of(ready, extras, self._max_body_bytes))  # check all before sending the first
        results: list[SendResult] = []
        for part in parts:
            send = self._sends.part(part, topic, sharding_key)
            send.pinned = results[0].queue if results else None
            try:
                results += self._delivery.send(send)
            except QueueError as error:
                if not results:
                    raise
                raise _stored_in_part(results, part, len(messages), error) from error
        return results

    def append_half(
        self, message: Message, group: str, sharding_key: str | None = None, immunity_s: int = 0
    ) -> SendResult:
        """Send the half message of a transaction. The result has its offset among the half messages."""
        extra = self._extra(message.topic, sharding_key) | {"TRAN_MSG": "true", "PGROUP": self._url.wrap(group)}
        if immunity_s:
            extra["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(immunity_s)
        send = self._single(message, sharding_key, extra, PREPARED)
        send.once = True
        return self._delivery.send(send)[0]

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
        """Send a received message again, see :mod:`.copies`; to a queue without a broker name in turn."""
        target = copies.sent_to(queue.topic)
        wait = self._delays.of_retry(target, delay_level, due_ms)
        request = copies.request_of(
            self._sends.singles, self._url, message, queue.topic, properties, wait, reconsume_times
        )
        pinned = queue if queue.broker_name else None
        return self._delivery.send(Send(request, (message.message_id,), target, pinned=pinned))[0]

    def append_once(self, *_: object, **__: object) -> NoReturn:
        """Raise NotOnCluster."""
        raise NotOnCluster(
            "brokers do not look for a key before they store: send with keys=[...] and let the handler drop repeats, "
            "for instance by an Inbox"
        )

    def append_inner_batch(self, *_: object, **__: object) -> NoReturn:
        """Raise NotOnCluster."""
        raise NotOnCluster(
            "brokers take no batch that is compressed as a whole: send it without compression=, or give the producer a "
            "compression, which compresses each body"
        )

    def cancel(self, *_: object) -> NoReturn:
        """Raise NotOnCluster."""
        raise NotOnCluster(
            "brokers find no waiting message by its id: let the handler drop what is no longer wanted, for instance by "
            "a key in a table of cancelled ones"
        )

    def wait_until_flushed(self, commit_log_end: int | None = None) -> None:
        """Do nothing: a broker answers only after a flush, if its flushDiskType says so."""

    def buffer(self, limit_bytes: int) -> WriteBuffer:
        """Return a buffer of ``limit_bytes`` at most, which sends batches."""
        return WriteBuffer(_Buffered(self.append_batch, self._sends.size_of), limit_bytes)

    def close(self) -> None:
        """Wait for every :meth:`append_async`, and leave the group. Closing twice does nothing."""
        self._delivery.close()
        self._leave()


@dataclass(frozen=True, slots=True)
class _Buffered:
    """Adapts the sender to a write buffer."""

    append_batch: Callable[[Sequence[Message], str | None], list[SendResult]]
    record_size: Callable[[Message, str | None], int]

    def queue_of(self, message: Message, sharding_key: str | None) -> int | None:
        """Return None: the queues take turns."""
        del message, sharding_key
        return None


def _stored_in_part(results: list[SendResult], part: Part, count: int, error: QueueError) -> BatchStoredInPart:
    doubt = f", the next {len(part.messages):,} may be" if error.stored else ""
    return BatchStoredInPart(
        f"the first {len(results):,} of {count:,} messages are stored{doubt}, the others are not: {error}", results
    )
