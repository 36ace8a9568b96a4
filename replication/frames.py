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
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from rmqclient.errors import FrameError

_REPORT: Final = struct.Struct(">q")
_HEADER: Final = struct.Struct(">qi")

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


def report(end: int) -> bytes:
    """Return a report."""
    return _REPORT.pack(end)


def frame(offset: int, content: bytes) -> bytes:
    """Return a frame."""
    return _HEADER.pack(offset, len(content)) + content


class ReportReader:
    """Puts reports together from the bytes of a connection."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Return the reports that are whole now."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT_BYTES
        self._rest = data[whole:]
        return [end for (end,) in _REPORT.iter_unpack(data[:whole])]


class FrameReader:
    """Puts frames together from the bytes of a connection."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are whole now. Raises FrameError for a length that no primary sends."""
        self._held += data
        while len(self._held) >= HEADER_BYTES:
            offset, size = _HEADER.unpack_from(self._held)
            if not 0 <= size <= MOST_TAKEN_BYTES:
                raise FrameError(f"a frame of {size} bytes at {offset} of the log: 0 to {MOST_TAKEN_BYTES} can be")
            if len(self._held) < HEADER_BYTES + size:
                return
            content = bytes(self._held[HEADER_BYTES : HEADER_BYTES + size])
            del self._held[: HEADER_BYTES + size]
            yield Frame(offset, content)
