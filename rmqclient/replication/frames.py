"""Frames of RocketMQ's HA protocol. [HAConnection and HAClient of 4.9.7, DefaultHAConnection of 5.3.3]

There is no handshake, version or checksum, only two streams of big-endian numbers.

====================  ==============  ============================================================================
from                  unit            layout
====================  ==============  ============================================================================
replica to primary    report, 8 B     i64: the end of the replica's log; the first one is the start offset
primary to replica    frame, 12 + n   i64 offset of the first byte, i32 n, then n bytes of the log. Without bytes it
                                      is a heartbeat, with the next offset
====================  ==============  ============================================================================

A frame lies inside one file of the log, and may begin and end anywhere in a record.

Between two peers of this library (:mod:`rmqclient.replication.handshake`) a CRC-32 of the rest follows each report, and
the first 12 bytes of each frame. A frame with a length of -1 has no content: its offset is the end of the primary's
log.
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
_END: Final = -1
"""Length of a frame whose offset is the end of the primary's log."""

HEADER_BYTES: Final = _HEADER.size
REPORT_BYTES: Final = _REPORT.size

MOST_BYTES: Final = 128 << 10
"""Bytes of the log in a frame that this library sends, at most. A stock replica takes up to 4 MiB - 12."""

MOST_TAKEN_BYTES: Final = (4 << 20) - HEADER_BYTES
"""Bytes of the log in a received frame, at most. [READ_MAX_BUFFER_SIZE]"""

HEARTBEAT_S: Final = 5.0
"""Seconds after which an idle side sends a heartbeat. [haSendHeartbeatInterval]"""

SILENCE_S: Final = 20.0
"""Seconds of silence after which a peer counts as gone. [haHousekeepingInterval]"""


class Frame(NamedTuple):
    """A part of the log; a heartbeat if ``content`` is empty."""

    offset: int
    content: bytes
    is_end: bool = False
    """Whether ``offset`` is the end of the primary's log."""


class Wire:
    """Encodes reports and frames: as RocketMQ does, or with checksums between peers of this library.

    A flipped bit must not become an acknowledgement, nor a byte of the log that no record's CRC covers.
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

    def end_frame(self, end: int) -> bytes:
        """Return a frame with the end of the log. Only with checksums."""
        header = _HEADER.pack(end, _END)
        return header + _CRC.pack(crc32(header))

    def report_reader(self) -> ReportReader:
        """Return a reader of the reports of one connection."""
        return ReportReader(is_checked=self.is_checked)

    def frame_reader(self) -> FrameReader:
        """Return a reader of the frames of one connection."""
        return FrameReader(is_checked=self.is_checked)


STOCK: Final = Wire(is_checked=False)
OURS: Final = Wire(is_checked=True)

report, frame = STOCK.report, STOCK.frame


class ReportReader:
    """Decodes reports from the bytes of a connection."""

    def __init__(self, *, is_checked: bool = False) -> None:
        self._unit = REPORT_BYTES + (_CRC.size if is_checked else 0)
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Return the reports that ``data`` completes. Raises FrameError for a damaged one."""
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
    """Decodes frames from the bytes of a connection."""

    def __init__(self, *, is_checked: bool = False) -> None:
        self._is_checked = is_checked
        self._header_bytes = HEADER_BYTES + (_CRC.size if is_checked else 0)
        self._held = bytearray()

    @property
    def is_amid_frame(self) -> bool:
        """Whether a frame is incomplete."""
        return bool(self._held)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that ``data`` completes. Raises FrameError for an invalid length, and for damage."""
        self._held += data
        while len(self._held) >= self._header_bytes:
            offset, size = _HEADER.unpack_from(self._held)
            if not 0 <= size <= MOST_TAKEN_BYTES and not (self._is_checked and size == _END):
                raise FrameError(f"a frame of {size} bytes at {offset} of the log: 0 to {MOST_TAKEN_BYTES} can be")
            end = self._header_bytes + max(size, 0)
            if len(self._held) < end:
                return
            content = bytes(self._held[self._header_bytes : end])
            self._check(offset, content)
            del self._held[:end]
            yield Frame(offset, content, is_end=size == _END)

    def _check(self, offset: int, content: bytes) -> None:
        if self._is_checked:
            said = _CRC.unpack_from(self._held, HEADER_BYTES)[0]
            if said != crc32(content, crc32(bytes(self._held[:HEADER_BYTES]))):
                raise FrameError(f"a frame of {len(content)} bytes at {offset} of the log came damaged")
