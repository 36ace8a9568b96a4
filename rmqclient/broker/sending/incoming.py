"""Incoming: a message as a request brings it, before it is stored."""

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
"""How a body is compressed, and several tags. The other bits say what the store does with a record, and a client must
not say it: hosts, transactions, inner batches. [MessageSysFlag]"""
REGION: Final = "DefaultRegion"
IS_TRACED: Final = "true"
"""Values of ``MSG_REGION`` and ``TRACE_ON``, in records and in answers."""
ORIGINS: Final = frozenset({"RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"})
"""Properties by which a message says where it failed first. A dead letter that is replayed goes there."""
_INNER_HEAD: Final = struct.Struct(">i12xi")
"""Size and size of the body of a message in a batch; between them are words of which nothing is needed here."""
_INNER_SIZE: Final = struct.Struct(">H")
_OWN: Final = ("__CRC32#", "INNER_NUM", "INNER_BASE", "TIMER_DEL_UNIQKEY", "TIMER_QUEUE_OFFSET", "TIMER_ROLL_TIMES")
"""Properties that only the store writes."""


@dataclass(slots=True)
class Incoming:
    """A message, and the two ends of the connection that it came by."""

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
        """Whether this begins a transaction. [TRAN_MSG]"""
        return self.properties.get("TRAN_MSG", "").lower() == "true"


def properties_of(text: str) -> dict[str, str]:
    """Return the properties in a text, as brokers read them; the last one of a name counts.

    Names and values that are empty count as absent, and what only the store writes is left out.
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
    """Return the properties of each message in the body of a batch, as texts. Raises BodyError. [encodeMessages]"""
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
    """Return what a send needs. A failed message goes back to where it says that it failed, if a person replays it.

    A consumer that may only read sends what failed to its retry topic. The handler asks for more, unless it is a copy.
    """
    topic: str = request.fields["topic"]
    yield need_of_topic(topic, PUB)
    of_origin = ANY if topic.startswith(RETRY_PREFIX) else PUB
    for origin in _origins(request):
        yield need_of_topic(origin, of_origin)


def _origins(request: Request) -> Iterator[str]:
    """Return every topic that a message of a send says that it failed in, whichever counts."""
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
    """Return what a broker of 5.x adds to the properties of a message. [SendMessageProcessor.buildMsgContext]

    Brokers of 4.9 add CLUSTER alone. Without MSG_REGION a consumer of 5.3 writes no trace of the message.
    """
    return {"CLUSTER": cluster, "MSG_REGION": REGION, "TRACE_ON": IS_TRACED}


def text_of(properties: Mapping[str, str]) -> str:
    """Return properties as a text. [MessageDecoder.messageProperties2String]"""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
