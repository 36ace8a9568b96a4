"""Sends: messages and batches of one producer, checked and encoded, for :class:`.delivery.Delivery`."""

from __future__ import annotations

from rmqclient.backend.limits import Limits
from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.sending.batches import Part
from rmqclient.cluster.sending.delays import Delays
from rmqclient.cluster.sending.delivery import Send
from rmqclient.cluster.sending.send_requests import SendRequests, size_of
from rmqclient.codecs import encoded
from rmqclient.errors import BodyTooLarge
from rmqclient.message import Message
from rmqclient.names import check_sharding_key
from rmqclient.remoting.codes import RequestCode
from rmqclient.store.wire import encode_properties, new_message_id


class Sends:
    """Makes the sends of a producer group, ``wire_group`` on the wire. Safe for threads."""

    def __init__(self, url: ClusterURL, wire_group: str, delays: Delays, limits: Limits) -> None:
        self.singles = SendRequests(RequestCode.SEND_MESSAGE_V2, wire_group)
        self._batches = SendRequests(RequestCode.SEND_BATCH_MESSAGE, wire_group)
        self._url = url
        self._delays = delays
        self._max_body_bytes = limits.max_body_bytes

    def encoded(self, message: Message) -> Message:
        """Return a message with its encoded body. Raises MessageRejected, BodyTooLarge."""
        message = encoded(message)
        body = message.body
        assert isinstance(body, bytes)
        if len(body) > self._max_body_bytes:
            raise BodyTooLarge(
                f"the body has {len(body):,} bytes; a broker takes {self._max_body_bytes:,} (maxMessageSize): "
                "store what is larger elsewhere, and send its name"
            )
        return message

    def added(self, topic: str, sharding_key: str | None, delay_level: int = 0, due_ms: int = 0) -> dict[str, str]:
        """Return the properties that the client adds to a message."""
        extra = {"UNIQ_KEY": new_message_id()}
        if sharding_key is not None:
            check_sharding_key(sharding_key)
            extra["__SHARDINGKEY"] = sharding_key
        if self._url.namespace:
            extra["INSTANCE_ID"] = self._url.namespace
        if delay_level or due_ms:
            extra |= self._delays.properties(topic, delay_level, due_ms)
        return extra

    def single(self, message: Message, sharding_key: str | None, extra: dict[str, str], sys_flag: int = 0) -> Send:
        """Return the send of one message. Raises MessageRejected, BodyTooLarge."""
        message = self.encoded(message)
        body = message.body
        assert isinstance(body, bytes)
        topic, properties = self._url.wrap(message.topic), encode_properties(message, extra)
        request = self.singles.make(topic, body, properties, message.sys_flag | sys_flag, message.flag)
        return Send(request, (extra["UNIQ_KEY"],), message.topic, sharding_key)

    def part(self, part: Part, topic: str, sharding_key: str | None) -> Send:
        """Return the send of a part of a batch; a single message may be one that no batch takes."""
        if not part.is_batch:
            return self.single(part.messages[0], sharding_key, part.extras[0])
        return Send(self._batches.make(self._url.wrap(topic), part.body), part.message_ids, topic, sharding_key)

    def size_of(self, message: Message, sharding_key: str | None) -> int:
        """Return the bytes of a message in a request. Raises as a send of it."""
        return size_of(self.single(message, sharding_key, self.added(message.topic, sharding_key)).request)
