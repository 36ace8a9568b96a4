"""Mutated requests: recorded ones with other bytes, lengths, fields and bodies.

Most stay frames, so that what is inside is read. Every code that was recorded comes; those of messages, pulls and
heartbeats come more often. One in two hundred is long: it has long names, fields that nobody knows, or a long body, up
to what a server takes of a header.
"""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

import orjson

from rmqclient.broker.limits.limits import Limits
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.errors import FrameError
from rmqclient.remoting.frame import Frame, FrameReader
from tests.remoting.recordings import BUNDLES, recorded_frames
from tests.torture.damage.fuzz import mutate

_PREFIX: Final = struct.Struct(">iI")
_LONGEST: Final = 4096
_BROKEN_SHARE: Final = 0.05
_LONG_SHARE: Final = 0.005
_LONGEST_HEADER: Final = Limits().header_bytes
_LONGEST_BODY: Final = 2 << 20

MAKES: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.HEART_BEAT,
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    }
)
"""With another name they make another topic or group, which a broker keeps, on the disk and in memory."""

_TOKENS: Final[tuple[Any, ...]] = (
    "",
    "0",
    "-1",
    "1",
    "true",
    "null",
    "NaN",
    "2147483647",
    "2147483648",
    "-9223372036854775808",
    "99999999999999999999",
    "../../../outside",
    "/outside",
    "a\x00b",
    "%RETRY%",
    "%DLQ%",
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "a" * 300,
    "\u20ac\U0001f600",
    "[[[[",
    0,
    -1,
    2**63,
    1.5,
    True,
    None,
    [1, 2],
    {"a": {"b": 1}},
    [[[[[[]]]]]],
)


_TEXTS: Final = frozenset(token for token in _TOKENS if isinstance(token, str))
_NAMING: Final = frozenset(
    {"b", "topic", "group", "consumerGroup", "groupName", "srcGroup", "destGroup", "namespace", "key"}
)
"""Fields whose values name what is made."""

OFTEN: Final[dict[int, int]] = {
    RequestCode.SEND_MESSAGE: 8,
    RequestCode.SEND_MESSAGE_V2: 8,
    RequestCode.SEND_BATCH_MESSAGE: 2,
    RequestCode.PULL_MESSAGE: 1,
    RequestCode.HEART_BEAT: 1,
}
"""What clients send all the time, and its shares."""

_OFTEN_SHARE: Final = 5
"""How much more often these come than any other request."""


@dataclass(frozen=True, slots=True)
class Mutated:
    """Some bytes. Behind broken ones nothing on the connection can be understood."""

    raw: bytes
    is_whole: bool


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A request as a client sent it: ``header`` begins with its kind and length."""

    header: bytes
    body: bytes
    texts: frozenset[str]
    """What may be a name in it."""


class Requests:
    """What clients were recorded to ask.

    ``made_share``: how many requests that would make something of a name that nobody recorded are let through.
    """

    def __init__(self, made_share: float = 1.0) -> None:
        self._made_share = made_share
        found: dict[int, list[_Recorded]] = defaultdict(list)
        for bundle in BUNDLES:
            for frame in recorded_frames(bundle):
                if frame.is_from_client and not frame.is_response and len(frame.raw) < _LONGEST:
                    found[frame.header["code"]].append(_recorded(frame.raw))
        self._found = [found[code] for code in found for _ in range(_OFTEN_SHARE if code in OFTEN else 1)]
        self._often = [found[code] for code in found for _ in range(OFTEN.get(code, 0))]

    def one(self, rng: random.Random) -> Mutated:
        """Return a request with some change, or with none. Few are no frames: they end what a connection can try."""
        return self._one(rng, self._found)

    def often(self, rng: random.Random) -> bytes:
        """Return a frame of what clients send all the time, with some change, or with none."""
        while not (mutated := self._one(rng, self._often)).is_whole:
            pass
        return mutated.raw

    def _one(self, rng: random.Random, found: list[list[_Recorded]]) -> Mutated:
        while True:
            request = rng.choice(rng.choice(found))
            if request.header[0] == 0 and rng.random() < _LONG_SHARE:
                return Mutated(_lengthened(request, rng), is_whole=True)
            raw = _mutated(request.header, request.body, rng)
            frame = _frame_of(raw)
            if frame is None:
                if rng.random() < _BROKEN_SHARE:
                    return Mutated(raw, is_whole=False)
            elif not _makes_another(frame, request) or rng.random() < self._made_share:
                return Mutated(raw, is_whole=True)


def _lengthened(request: _Recorded, rng: random.Random) -> bytes:
    """Return a request with long names, with unknown fields or with a long body. No name in it can be made."""
    read = orjson.loads(request.header[4:])
    fields, body = read.get("extFields") or {}, request.body
    room = _LONGEST_HEADER - len(request.header) - 64
    size = int(2 ** rng.uniform(12, room.bit_length() - 1))
    choice = rng.random()
    if choice < 0.3:
        fields = {**fields, rng.choice(sorted({*fields, "topic"})): "x" * size}
    elif choice < 0.5:
        fields = {**fields, "unknown": "x" * size}
    elif choice < 0.7:
        fields = {**fields, **{f"{number:x}": "" for number in range(size // 11)}}
    else:
        body = _long_body(read.get("code"), int(2 ** rng.uniform(12, _LONGEST_BODY.bit_length() - 1)))
    return _framed(request.header[:4] + orjson.dumps({**read, "extFields": fields}), body)


def _long_body(code: int, size: int) -> bytes:
    """Return a heartbeat with so many bytes of subscriptions, or that many letters."""
    if code != RequestCode.HEART_BEAT:
        return b"x" * size
    topics = [{"topic": f"{number:0100}", "subString": "*"} for number in range(size // 135)]
    group = {"groupName": "%RETRY%", "subscriptionDataSet": topics}
    return orjson.dumps({"clientID": "long", "producerDataSet": [], "consumerDataSet": [group]})


def _recorded(raw: bytes) -> _Recorded:
    body = 8 + (_PREFIX.unpack_from(raw)[1] & 0xFFFFFF)
    frame = _frame_of(raw)
    assert frame is not None
    return _Recorded(raw[4:body], raw[body:], frozenset(frame.fields.values()) | _texts_in(frame.body) | _TEXTS)


def _makes_another(frame: Frame, request: _Recorded) -> bool:
    """Whether a broker makes something of a name that was not in the request."""
    if frame.code not in MAKES:
        return False
    names = {value for field, value in frame.fields.items() if field in _NAMING}
    return not names <= request.texts or not _texts_in(frame.body) <= request.texts


def _texts_in(body: bytes) -> frozenset[str]:
    """Return the texts in a body of JSON; none if it is something else."""
    try:
        waiting = [orjson.loads(body)] if body else []
    except orjson.JSONDecodeError:
        return frozenset()
    texts = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            texts.add(value)
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return frozenset(texts)


def _mutated(header: bytes, body: bytes, rng: random.Random) -> bytes:
    choice = rng.random()
    if choice < 0.40:
        return _framed(_fields_changed(header, rng), body)
    if choice < 0.65:
        return _framed(header[:4] + _changed(header[4:], rng), body)
    if choice < 0.97 and body:
        return _framed(header, _changed(body, rng))
    if choice < 0.97:
        return _framed(header, rng.randbytes(rng.randrange(64)))
    broken = bytearray(_framed(header, body))
    if choice < 0.98:
        broken[:8] = _changed(bytes(broken[:16]), rng)[:8]
    else:
        del broken[rng.randrange(len(broken)) :]
    return bytes(broken)


def _frame_of(raw: bytes) -> Frame | None:
    """Return the frame that some bytes are; None if they are no frame, or more or less than one."""
    reader = FrameReader()
    try:
        frames = reader.feed(raw)
    except FrameError:
        return None
    return frames[0] if len(frames) == 1 and not reader.held and reader.damage is None else None


def _framed(header: bytes, body: bytes) -> bytes:
    """Return the frame of a header that begins with its kind and length."""
    return _PREFIX.pack(len(header) + len(body), header[0] << 24 | len(header) - 4) + header[4:] + body


def _changed(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    mutate(changed, rng)
    if rng.random() < 0.1:
        del changed[rng.randrange(len(changed) + 1) :]
    return bytes(changed)


def _fields_changed(header: bytes, rng: random.Random) -> bytes:
    """Give some fields another value, or leave them out; a binary header gets other bytes."""
    if header[0] != 0:
        return header[:4] + _changed(header[4:], rng)
    read = orjson.loads(header[4:])
    fields = read.get("extFields") or {}
    for _ in range(rng.choice((1, 1, 2, 5))):
        if fields:
            name = rng.choice(list(fields))
            if rng.random() < 0.2:
                del fields[name]
            else:
                fields[name] = rng.choice(_TOKENS)
    if rng.random() < 0.05:
        read[rng.choice(("code", "flag", "opaque", "version", "language", "remark", "extFields"))] = rng.choice(_TOKENS)
    read["extFields"] = fields if "extFields" not in read or isinstance(read["extFields"], dict) else read["extFields"]
    try:
        return header[:4] + orjson.dumps(read)
    except TypeError:  # it writes no numbers of more than 64 bits
        return header
