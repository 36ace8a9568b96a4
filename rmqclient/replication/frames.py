"""Frames of RocketMQ's HA protocol. [HAConnection and HAClient of 4.9.7, DefaultHAConnection of 5.3.3]

There is no handshake, version or checksum: two streams of big-endian numbers.

====================  ==============  ============================================================================
from                  unit            layout
====================  ==============  ============================================================================
replica to primary    report, 8 B     i64: the end of the replica's log; the first one says where to begin
primary to replica    frame, 12 + n   i64 offset of the first byte, i32 n, then n bytes of the log. Without bytes it
                                      is a heartbeat: "there I would go on"
====================  ==============  ============================================================================

A frame lies inside one file of the log, and may begin and end anywhere in a record.

Between two of ours, which :mod:`rmqclient.replication.handshake` finds out, a CRC-32 of all the rest follows a report,
and the 12 bytes before the content of a frame. A frame of -1 bytes there has none: its offset is where the log of the
primary ends.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import crc32

from rmqclient.errors import FrameError

_REPORT: Final = struct.Struct(">q")
_HEADER: Final = struct.Struct(">qi")
_CRC: Final = struct.Struct(">I")
_TOLD: Final = -1
"""In the place of a length: the primary says where its log ends."""

HEADER_BYTES: Final = _HEADER.size
REPORT_BYTES: Final = _REPORT.size

MOST_BYTES: Final = 128 << 10
"""Bytes of the log in a frame that this library sends. A stock replica takes up to 4 MiB - 12."""

MOST_TAKEN_BYTES: Final = (4 << 20) - HEADER_BYTES
"""Longest frame that is believed. [READ_MAX_BUFFER_SIZE]"""

HEARTBEAT_S: Final = 5.0
"""A side that has nothing to say says so after this time. [haSendHeartbeatInterval]"""

SILENCE_S: Final = 20.0
"""A side that says nothing for so long is gone. [haHousekeepingInterval]"""


class Frame(NamedTuple):
    """A part of the log; a heartbeat when ``content`` is empty."""

    offset: int
    content: bytes
    is_told: bool = False
    """Whether it says where the log ends, between two of ours, and not where it goes on."""


class Wire:
    """How reports and frames are written: as RocketMQ does, or between two of ours with checksums.

    A flipped bit must not become an acknowledgement, nor a byte of the log where no record checks it.
    """

    def __init__(self, *, is_checked: bool) -> None:
        self.is_checked = is_checked

    def report(self, end: int) -> bytes:
        """Return a report."""
        plain = _REPORT.pack(end)
        return plain + _CRC.pack(crc32(plain)) if self.is_checked else plain

    def frame(self, offset: int, content: bytes) -> bytes:
        """Return a frame."""
        header = _HEADER.pack(offset, len(content))
        return header + _CRC.pack(crc32(content, crc32(header))) + content if self.is_checked else header + content

    def told(self, end: int) -> bytes:
        """Return a frame that says where the log ends. Only where frames are checked."""
        header = _HEADER.pack(end, _TOLD)
        return header + _CRC.pack(crc32(header))

    def report_reader(self) -> ReportReader:
        """Return what reads the reports of one connection."""
        return ReportReader(is_checked=self.is_checked)

    def frame_reader(self) -> FrameReader:
        """Return what reads the frames of one connection."""
        return FrameReader(is_checked=self.is_checked)


STOCK: Final = Wire(is_checked=False)
OURS: Final = Wire(is_checked=True)

report, frame = STOCK.report, STOCK.frame


class ReportReader:
    """Puts reports together from the bytes of a connection."""

    def __init__(self, *, is_checked: bool = False) -> None:
        self._unit = REPORT_BYTES + (_CRC.size if is_checked else 0)
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Return the reports that are whole now. Raises FrameError for one that came damaged."""
        data = self._rest + data
        whole = len(data) - len(data) % self._unit
        self._rest = data[whole:]
        return [self._read(data[at : at + self._unit]) for at in range(0, whole, self._unit)]

    def _read(self, unit: bytes) -> int:
        end: int = _REPORT.unpack_from(unit)[0]
        if len(unit) > REPORT_BYTES and _CRC.unpack_from(unit, REPORT_BYTES)[0] != crc32(unit[:REPORT_BYTES]):
            raise FrameError(f"a report of {end} came damaged")
        return end


class FrameReader:
    """Puts frames together from the bytes of a connection."""

    def __init__(self, *, is_checked: bool = False) -> None:
        self._is_checked = is_checked
        self._header_bytes = HEADER_BYTES + (_CRC.size if is_checked else 0)
        self._held = bytearray()

    @property
    def is_amid_frame(self) -> bool:
        """Whether the rest of a frame is still to come."""
        return bool(self._held)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are whole now. Raises FrameError for a length that no primary sends, and for damage."""
        self._held += data
        while len(self._held) >= self._header_bytes:
            offset, size = _HEADER.unpack_from(self._held)
            if not 0 <= size <= MOST_TAKEN_BYTES and not (self._is_checked and size == _TOLD):
                raise FrameError(f"a frame of {size} bytes at {offset} of the log: 0 to {MOST_TAKEN_BYTES} can be")
            end = self._header_bytes + max(size, 0)
            if len(self._held) < end:
                return
            content = bytes(self._held[self._header_bytes : end])
            self._check(offset, content)
            del self._held[:end]
            yield Frame(offset, content, is_told=size == _TOLD)

    def _check(self, offset: int, content: bytes) -> None:
        if self._is_checked:
            said = _CRC.unpack_from(self._held, HEADER_BYTES)[0]
            if said != crc32(content, crc32(bytes(self._held[:HEADER_BYTES]))):
                raise FrameError(f"a frame of {len(content)} bytes at {offset} of the log came damaged")
