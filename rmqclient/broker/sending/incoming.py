"""Incoming: a message in a request, before it is stored."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rmqclient.broker.address import Address
from rmqclient.broker.request import Request
from rmqclient.broker.routes import ANY, PUB, Need, need_of_topic
from rmqclient.names import RETRY_PREFIX
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.errors import BodyError

HALF: Final = 0x4
"""Bit of the system flag: a message of an undecided transaction. [MessageSysFlag.TRANSACTION_PREPARED_TYPE]"""

KEPT_FLAGS: Final = 0x703
"""Bits of the system flag that clients may set: compression, several tags. The others describe what the store does with
a record: hosts, transactions, inner batches. [MessageSysFlag]"""
REGION: Final = "DefaultRegion"
IS_TRACED: Final = "true"
"""Values of ``MSG_REGION`` and ``TRACE_ON``, in records and in answers."""
ORIGINS: Final = frozenset({"RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"})
"""Properties with the topic in which a message failed first. A replayed dead letter goes there."""
_INNER_HEAD: Final = struct.Struct(">i12xi")
"""Head of a message in a batch: its size, words that are not needed here, and the size of its body."""
_INNER_SIZE: Final = struct.Struct(">H")
_OWN: Final = ("__CRC32#", "INNER_NUM", "INNER_BASE", "TIMER_DEL_UNIQKEY", "TIMER_QUEUE_OFFSET", "TIMER_ROLL_TIMES")
"""Properties that only the store writes."""


@dataclass(slots=True)
class Incoming:
    """A message, and both addresses of its connection."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    flag: int
    sys_flag: int
    """Only the bits that a client may set."""
    born_ms: int
    born_host: Address
    store_host: Address
    reconsume_times: int = 0

    @classmethod
    def of(cls, request: Request) -> Incoming:
        """Return the message of a request 310, 10, 320, 324 or 325. Raises HeaderError."""
        fields = request.fields
        return cls(
            fields["topic"],
            fields["queueId"],
            request.body,
            properties_of(fields.get("properties", "")),
            fields["flag"],
            fields["sysFlag"] & KEPT_FLAGS,
            fields["bornTimestamp"],
            request.peer.remote,
            request.peer.local,
            max(0, fields.get("reconsumeTimes", 0)),
        )

    @property
    def is_half(self) -> bool:
        """Whether this is the half message of a transaction. [TRAN_MSG]"""
        return self.properties.get("TRAN_MSG", "").lower() == "true"


def properties_of(text: str) -> dict[str, str]:
    """Parse properties as brokers do; the last one of a name counts.

    Leaves out empty names and values, and properties that only the store writes.
    """
    found = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            found[name] = value
    if not found.keys().isdisjoint(_OWN):
        found = {name: value for name, value in found.items() if name not in _OWN}
    return found


def _texts_of_batch(body: bytes) -> Iterator[str]:
    """Yield the properties of each message of a batch, unparsed. Raises BodyError. [encodeMessages]"""
    at = 0
    while at < len(body):
        try:
            size, body_size = _INNER_HEAD.unpack_from(body, at)
            text_at = at + _INNER_HEAD.size + body_size + _INNER_SIZE.size
            (text_size,) = _INNER_SIZE.unpack_from(body, text_at - _INNER_SIZE.size)
        except struct.error:
            raise BodyError(f"a batch of {len(body)} bytes: the message at {at} is cut off") from None
        if body_size < 0 or text_at + text_size != at + size:
            raise BodyError(f"a batch of {len(body)} bytes: the sizes of the message at {at} do not add up")
        yield body[text_at : at + size].decode(errors="replace")
        at += size


def of_send(request: Request) -> Iterator[Need]:
    """Yield the needs of a send: for its topic, and for the topics it failed in, where a replay would send it.

    A read-only consumer may send a failed message to its retry topic. If it is not a copy, the handler checks more.
    """
    topic: str = request.fields["topic"]
    yield need_of_topic(topic, PUB)
    of_origin = ANY if topic.startswith(RETRY_PREFIX) else PUB
    for origin in _origins(request):
        yield need_of_topic(origin, of_origin)


def _origins(request: Request) -> Iterator[str]:
    """Yield every topic that a message of a send names as its origin."""
    fields = request.fields
    texts = [fields.get("properties") or ""]
    is_batch = request.code == RequestCode.SEND_BATCH_MESSAGE or fields.get("batch")
    if is_batch and b"_TOPIC\x01" in request.body:
        texts += _texts_of_batch(request.body)
    for text in texts:
        if "_TOPIC\x01" in text:
            pairs = (pair.partition("\x01") for pair in text.split("\x02"))
            yield from (value for name, _, value in pairs if name in ORIGINS and value)


def added_properties(cluster: str) -> dict[str, str]:
    """Return the properties that a 5.x broker adds to a message. [SendMessageProcessor.buildMsgContext]

    4.9 brokers add only CLUSTER. Without MSG_REGION a 5.3 consumer writes no trace of the message.
    """
    return {"CLUSTER": cluster, "MSG_REGION": REGION, "TRACE_ON": IS_TRACED}


def text_of(properties: Mapping[str, str]) -> str:
    """Return properties in the form of records. [MessageDecoder.messageProperties2String]"""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
