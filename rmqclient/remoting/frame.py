r"""Frames: requests and answers on a connection. [RemotingCommand, RocketMQSerializable]

======  ==============  =============================================================================
offset  field           type
======  ==============  =============================================================================
0       total           i32: bytes that follow this field; with it at most 16 MiB
4       serialization   i8: 0 JSON, 1 binary; the upper byte of an i32
5       header length   i24: the lower three bytes of that i32
8       header          JSON, or the binary header below
..      body            the rest; may be empty
======  ==============  =============================================================================

A JSON header is one object: ``code``, ``language`` (a name), ``version``, ``opaque``, ``flag``, ``remark`` and
``extFields``, an object of strings. Readers convert numbers and booleans to strings, because C++ and Node write them,
and ignore other keys. The binary header:

======  ==============  =============================================================================
offset  field           type
======  ==============  =============================================================================
0       code            i16: larger codes, such as those of POP, need JSON
2       language        i8
3       version         i16
5       opaque          i32
9       flag            i32
13      remark          i32 length and UTF-8; length 0 for no remark
..      fields          i32 length in bytes, then pairs: i16 length and name, i32 length and value, both UTF-8
======  ==============  =============================================================================

All numbers are big-endian. Frames follow each other without padding. Several requests may be under way on one
connection; answers come in any order, and ``opaque`` matches them. A peer answers in either serialization, so a reader
checks it for each frame.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import Any, Final

import orjson

from rmqclient.remoting.codes import VERSION, Language
from rmqclient.remoting.errors import FrameError

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""The longest frame, its length field included; a longer one closes the connection. [frameMaxLength]"""

RESPONSE: Final = 1
"""Bit of ``flag``: the frame is an answer."""

ONEWAY: Final = 2
"""Bit of ``flag``: the request needs no answer. Only Java sets it."""

_PREFIX: Final = Struct(">iI")
_U32: Final = Struct(">I")
_FIXED: Final = Struct(">hbhiii")  # up to the length of the remark
_INT32: Final = range(-(2**31), 2**31)
_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_HEADER_LENGTH: Final = 0xFFFFFF
_TLS: Final = (0x15, 0x16)  # alert, handshake
_LANGUAGES: Final = {language.name: int(language) for language in Language if language is not Language.UNKNOWN}
_NAMES: Final = {number: name for name, number in _LANGUAGES.items()}


class Serialization(IntEnum):
    """Encodings of a header. [SerializeType]"""

    JSON = 0
    ROCKETMQ = 1


@dataclass(slots=True)
class Frame:
    """A request or an answer.

    ``code`` is a request code or a response code; ``fields`` are the header's fields, with names and texts of the wire;
    ``opaque`` matches an answer with its request (i32, may be negative); ``remark`` is a text for people.
    """

    code: int
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    language: int = Language.PYTHON.value
    version: int = VERSION
    serialization: int = Serialization.JSON.value

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return bool(self.flag & RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether this request needs no answer."""
        return bool(self.flag & ONEWAY)


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame.

    Raises :class:`FrameError` if it is longer than 16 MiB, if a text is not UTF-8, or if a number does not fit into the
    binary header.
    """
    header = _json_header(frame) if frame.serialization == Serialization.JSON else _binary_header(frame)
    total = 4 + len(header) + len(frame.body)
    if total + 4 > MAX_FRAME_BYTES:
        raise FrameError(
            f"a frame of request or answer {frame.code} takes {total + 4:,} bytes, and peers take "
            f"{MAX_FRAME_BYTES:,} at most: send a shorter body"
        )
    return _PREFIX.pack(total, frame.serialization << 24 | len(header)) + header + frame.body


class FrameReader:
    """Decodes frames from the bytes of one connection, however these are split.

    It keeps the bytes of one incomplete frame, at most ``longest``. A longer frame, or a header of more than
    ``longest_header`` bytes, is damage as soon as its length is read.

    ``skip_taken(data, position)`` may handle complete frames itself; it returns the position of the first one that it
    left.
    """

    __slots__ = ("_longest", "_longest_header", "_rest", "_skipped", "_wanted", "damage", "skip_taken")

    def __init__(
        self,
        longest: int = MAX_FRAME_BYTES,
        longest_header: int = _HEADER_LENGTH,
        skip_taken: Callable[[bytes | memoryview, int], int] | None = None,
    ) -> None:
        self.skip_taken = skip_taken
        self._longest = longest
        self._longest_header = longest_header
        self._rest = bytearray()
        self._wanted = 4
        self._skipped = 0
        self.damage: FrameError | None = None
        """The error after which the connection cannot be read any further, or None."""

    def feed(self, data: bytes | memoryview) -> list[Frame]:
        """Return the frames that ``data`` completes, in order. They have copies of its bytes.

        Raises :class:`FrameError` if the next bytes are not a frame. Complete frames before the damage are returned
        first: then ``damage`` is set, and the next call raises it. Nothing can be read after that.
        """
        if self.damage is not None:
            raise self.damage
        if self._skipped:
            data = self._skip(data)
        frames, at = self._finished(data)
        if not self._rest:
            more, at = self._frames_of(data, at)
            frames += more
            self._rest += data[at:]
        if not frames and self.damage is not None:
            raise self.damage
        return frames

    @property
    def held(self) -> int:
        """Number of kept bytes of an incomplete frame; 0 between two frames."""
        return len(self._rest)

    def drop(self) -> Frame | None:
        """Give up the incomplete frame: drop its body, and skip the rest of it.

        Returns the frame without its body; None, and drops nothing, if its header is incomplete. Raises
        :class:`FrameError` for an invalid header.
        """
        rest, at = bytes(self._rest), 8
        if len(rest) < at:
            return None
        body = at + (_U32.unpack_from(rest, 4)[0] & _HEADER_LENGTH)
        if body > len(rest):
            return None
        frame = _frame_of(rest, 4, body)
        self._skipped, self._wanted = self._wanted - len(rest), 4
        self._rest = bytearray()
        return frame

    def _finished(self, data: bytes | memoryview) -> tuple[list[Frame], int]:
        """Add to the incomplete frame; return it if it is complete, and the number of bytes taken from ``data``."""
        frames: list[Frame] = []
        at = 0
        while self._rest and at < len(data):
            part = data[at : at + self._wanted - len(self._rest)]
            self._rest += part
            at += len(part)
            if len(self._rest) >= self._wanted:
                whole, self._rest = memoryview(self._rest), bytearray()
                frames, read = self._frames_of(whole, 0)
                self._rest += whole[read:]
        return frames, at if self.damage is None else len(data)

    def _skip(self, data: bytes | memoryview) -> bytes | memoryview:
        """Return the bytes after the frame that was given up."""
        skipped = min(self._skipped, len(data))
        self._skipped -= skipped
        return data[skipped:]

    def _frames_of(self, data: bytes | memoryview, at: int) -> tuple[list[Frame], int]:
        """Return the complete frames from ``at`` on, and their end; at damage, the end of the data."""
        frames: list[Frame] = []
        end = len(data)
        skip_taken = self.skip_taken
        self._wanted = 4
        try:
            while end - at >= 4:
                if skip_taken is not None and end - (at := skip_taken(data, at)) < 4:
                    break
                length = length_of(data, at, self._longest)
                self._wanted = 8  # the shortest frame, enough to check the header's length before keeping more
                if end - at < 8:
                    break
                self._check_header(data, at + 4)
                self._wanted = 4 + length
                if end - at < self._wanted:
                    break
                frames.append(_frame_of(data, at + 4, at + self._wanted))
                at += self._wanted
                self._wanted = 4
        except FrameError as error:
            self.damage, at = error, end
        return frames, at

    def _check_header(self, data: bytes | memoryview, at: int) -> None:
        length = _U32.unpack_from(data, at)[0] & _HEADER_LENGTH
        if length > self._longest_header:
            raise FrameError(f"a header of {length:,} bytes is announced: {self._longest_header:,} are allowed")


def length_of(data: bytes | memoryview, at: int, longest: int = MAX_FRAME_BYTES) -> int:
    """Return the length of the frame at ``at`` without its length field. Raises FrameError for an invalid length."""
    (total,) = _I32.unpack_from(data, at)
    if data[at] in _TLS:
        raise FrameError("the peer speaks TLS where a frame is expected: only one side has TLS")
    if not 4 <= total <= longest - 4:
        raise FrameError(
            f"a frame of {total:,} bytes is announced (first bytes {bytes(data[at : at + 8])!r}): "
            f"the length is from 4 to {longest - 4:,}"
        )
    return int(total)


def head_of(data: bytes | memoryview, at: int, end: int) -> tuple[Frame, int]:
    """Return the frame that ends at ``end`` without its body, and the body's begin; its header length is at ``at``.

    Raises :class:`FrameError` for an invalid header.
    """
    (mark,) = _U32.unpack_from(data, at)
    serialization, body = mark >> 24, at + 4 + (mark & _HEADER_LENGTH)
    if body > end:
        raise FrameError(f"a header of {body - at - 4:,} bytes does not fit into a frame of {end - at:,} bytes")
    header = bytes(data[at + 4 : body])
    if serialization == Serialization.JSON:
        return _read_json(header), body
    if serialization == Serialization.ROCKETMQ:
        return _read_binary(header), body
    raise FrameError(f"a header of the kind {serialization}: JSON (0) and ROCKETMQ (1) are known")


def _frame_of(data: bytes | memoryview, at: int, end: int) -> Frame:
    """Return the frame with its header length at ``at`` and its end at ``end``."""
    frame, body = head_of(data, at, end)
    frame.body = bytes(data[body:end])
    return frame


def _json_header(frame: Frame) -> bytes:
    header: dict[str, Any] = {"code": frame.code, "flag": frame.flag, "opaque": frame.opaque, "version": frame.version}
    if name := _NAMES.get(frame.language):
        header["language"] = name
    if frame.fields:
        header["extFields"] = frame.fields
    if frame.remark:
        header["remark"] = frame.remark
    try:
        return orjson.dumps(header)
    except orjson.JSONEncodeError as error:
        raise FrameError(f"the header of request or answer {frame.code} cannot be written: {error}") from error


def _read_json(data: bytes) -> Frame:
    try:
        header = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise FrameError(f"a header that is not JSON ({error}): {data[:80]!r}") from error
    if type(header) is not dict:
        raise FrameError(f"a header that is not a JSON object: {data[:80]!r}")
    fields = header.get("extFields") or {}
    if type(fields) is not dict:
        raise FrameError(f"extFields is not a JSON object: {fields!r:.80}")
    for value in fields.values():
        if type(value) is not str:
            fields = {name: _text_of(value) for name, value in fields.items() if value is not None}
            break
    return Frame(
        _number(header, "code", None),
        fields,
        b"",
        _number(header, "opaque", 0),
        _number(header, "flag", 0),
        _remark(header),
        _language(header),
        _number(header, "version", 0),
    )


def _number(header: dict[str, Any], name: str, default: int | None) -> int:
    value = header.get(name, default)
    if type(value) is not int or value not in _INT32:
        raise FrameError(f"{name} of a header is {value!r:.80}: a number of 32 bits is expected")
    return value


def _remark(header: dict[str, Any]) -> str | None:
    remark = header.get("remark")
    return None if remark is None or remark == "" else _text_of(remark)


def _language(header: dict[str, Any]) -> int:
    name = header.get("language")
    return _LANGUAGES.get(name, -1) if isinstance(name, str) else -1


def _text_of(value: object) -> str:
    """Convert a JSON value to a string as Java's fastjson does."""
    try:
        return value if isinstance(value, str) else orjson.dumps(value).decode()
    except orjson.JSONEncodeError as error:  # orjson reads deeper objects than it writes
        raise FrameError(f"a value of a header cannot be a text ({error}): {value!r:.80}") from error


def _binary_header(frame: Frame) -> bytes:
    try:
        remark = (frame.remark or "").encode()
        pairs = bytearray()
        for name, value in frame.fields.items():
            key, text = name.encode(), value.encode()
            pairs += _I16.pack(len(key)) + key + _I32.pack(len(text)) + text
        fixed = _FIXED.pack(frame.code, frame.language, frame.version, frame.opaque, frame.flag, len(remark))
    except (struct.error, UnicodeEncodeError) as error:
        raise FrameError(
            f"the header of request or answer {frame.code} cannot be written in binary: {error}"
        ) from error
    return fixed + remark + _I32.pack(len(pairs)) + bytes(pairs)


def _read_binary(data: bytes) -> Frame:
    try:
        code, language, version, opaque, flag, length = _FIXED.unpack_from(data)
        remark, at = _binary_text(data, _FIXED.size, length)
        (length,) = _I32.unpack_from(data, at)
        fields, end = {}, at + 4 + length
        at += 4
        if length < 0 or end > len(data):
            raise FrameError(f"fields of {length:,} bytes do not fit into a binary header of {len(data):,} bytes")
        while at < end:
            name, at = _binary_text(data, at + 2, *_I16.unpack_from(data, at))
            fields[name], at = _binary_text(data, at + 4, *_I32.unpack_from(data, at))
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"a binary header of {len(data):,} bytes cannot be read: {error}") from error
    if at > end:
        raise FrameError(f"the fields of a binary header end {at - end:,} bytes behind their length")
    return Frame(code, fields, b"", opaque, flag, remark or None, language, version, Serialization.ROCKETMQ.value)


def _binary_text(data: bytes, at: int, length: int) -> tuple[str, int]:
    """Return the text of ``length`` bytes at ``at``, and its end."""
    end = at + length
    if length < 0 or end > len(data):
        raise FrameError(f"a text of {length:,} bytes does not fit into a binary header of {len(data):,} bytes")
    return data[at:end].decode(), end
