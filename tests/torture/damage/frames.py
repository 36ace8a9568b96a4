"""Mutated requests: recorded ones with other bytes, lengths, fields and bodies.

Most stay frames, so that what is inside is read. Every code that was recorded comes as often as any other one.
"""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

import orjson

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.errors import FrameError
from rmqclient.remoting.frame import FrameReader
from tests.remoting.recordings import BUNDLES, recorded_frames
from tests.torture.damage.fuzz import mutate

_PREFIX: Final = struct.Struct(">iI")
_LONGEST: Final = 4096
_BROKEN_SHARE: Final = 0.05

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


@dataclass(frozen=True, slots=True)
class Mutated:
    """Some bytes. Behind broken ones nothing on the connection can be understood."""

    raw: bytes
    is_whole: bool


class Requests:
    """What clients were recorded to ask. ``made_share``: how many of those that make something are mutated at all."""

    def __init__(self, made_share: float = 1.0) -> None:
        self._made_share = made_share
        found: dict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
        for bundle in BUNDLES:
            for frame in recorded_frames(bundle):
                if frame.is_from_client and not frame.is_response and len(frame.raw) < _LONGEST:
                    _, mark = _PREFIX.unpack_from(frame.raw)
                    body = 8 + (mark & 0xFFFFFF)
                    found[frame.header["code"]].append((frame.raw[4:body], frame.raw[body:]))
        self._codes = list(found)
        self._found = dict(found)

    def one(self, rng: random.Random) -> Mutated:
        """Return a request with some change, or with none. Few are no frames: they end what a connection can try."""
        while True:
            mutated = self._any(rng)
            if _is_frame(mutated.raw):
                return mutated
            if rng.random() < _BROKEN_SHARE:
                return Mutated(mutated.raw, is_whole=False)

    def _any(self, rng: random.Random) -> Mutated:
        code = rng.choice(self._codes)
        header, body = rng.choice(self._found[code])
        choice = rng.random()
        if code in MAKES and rng.random() >= self._made_share:
            return _framed(header, body)
        if choice < 0.40:
            return _framed(_fields_changed(header, rng), body)
        if choice < 0.65:
            return _framed(header[:4] + _changed(header[4:], rng), body)
        if choice < 0.97 and body:
            return _framed(header, _changed(body, rng))
        if choice < 0.97:
            return _framed(header, rng.randbytes(rng.randrange(64)))
        broken = bytearray(_framed(header, body).raw)
        if choice < 0.98:
            broken[:8] = _changed(bytes(broken[:16]), rng)[:8]
        else:
            del broken[rng.randrange(len(broken)) :]
        return Mutated(bytes(broken), is_whole=False)


def _is_frame(raw: bytes) -> bool:
    reader = FrameReader()
    try:
        return len(reader.feed(raw)) == 1 and not reader.held and reader.damage is None
    except FrameError:
        return False


def _framed(header: bytes, body: bytes) -> Mutated:
    """Return the frame of a header that begins with its kind and length."""
    kind = header[0]
    return Mutated(
        _PREFIX.pack(len(header) + len(body), kind << 24 | len(header) - 4) + header[4:] + body, is_whole=True
    )


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
