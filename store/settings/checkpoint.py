"""Checkpoint: how far the log was on the disk when the housekeeper last looked.

``<root>/checkpoint``, always 4096 bytes, big-endian. RocketMQ (``StoreCheckpoint``) has its fields at the
beginning, and leaves the rest of the file alone::

    byte  size  field                    meaning
    ----  ----  -----------------------  -------
       0     8  commit_log_timestamp     store time of the newest flushed record, ms [physicMsgTimestamp]
       8     8  consume_queue_timestamp  the same for consume queues [logicsMsgTimestamp]
      16     8  index_timestamp          the same for the index [indexMsgTimestamp]
      24     8  flushed_to               commit log offset known to be on disk [masterFlushedOffset, 5.0]
    ----  ----
      32

Our own durable low-water mark stands in two slots, at bytes 1024 and 2048::

    byte  size  field          meaning
    ----  ----  -------------  -------
       0     8  sequence       the higher one of two valid slots counts
       8     8  flushed_to     every record below it is on disk
      16     8  dispatched_to  every consume queue entry for a record below it is on disk
      24     8  queue_ends     sum of the max offsets that all queues had there, or a little less
      32     4  crc            CRC-32 of the fields before
    ----  ----
      36

Invariants:

1. The newest valid slot is never the one being written, so a write that tears at any byte leaves the mark
   before it, and the mark on the disk only grows. Each slot is in a disk sector of its own.
2. The caller flushes what a mark states *before* it writes the mark. A mark that is too low costs time at
   recovery; a mark that is too high would make recovery take a torn tail for damage.

The file is not mapped: only the first opener and the writers read it. Writers that race each other leave one of
their marks whole, because one call writes a whole slot.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import astuple, dataclass
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.errors import NO_ROOM, as_store_error, store_errors
from rmqclient.store.files.file_system import check_plain
from rmqclient.store.kernel._kernel import Mapping
from rmqclient.store.settings import document

FILE_NAME = "checkpoint"

_SLOT_WITHOUT_CRC = layout.LOW_WATER.at["crc"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The fields that RocketMQ reads; 0 means not known. Times are epoch milliseconds."""

    commit_log_timestamp: int = 0
    consume_queue_timestamp: int = 0
    index_timestamp: int = 0
    flushed_to: int = 0


@dataclass(frozen=True, slots=True)
class LowWater:
    """What must be whole after a power cut: a bad record below ``flushed_to`` is damage, above it a torn tail."""

    sequence: int
    """Counts up by at least one with every mark written."""

    flushed_to: int
    """Every record below this commit log offset is on disk."""

    dispatched_to: int
    """Every consume queue entry for a record below this commit log offset is on disk."""

    queue_ends: int = 0
    """Sum of the max offsets of all queues at ``dispatched_to``, or a little less. If the files hold less than that,
    some of them were deleted."""


def read(root: Path) -> tuple[Checkpoint, LowWater | None]:
    """Return what the file says; zeros and ``None`` if it is missing or not 4096 bytes long.

    A negative field, which can be neither a time nor an offset, counts as not known.

    The low-water mark is also ``None`` if neither slot is valid, as after a RocketMQ broker made the file.

    Raises:
        StoreUnusable: not a regular file, or it may not be read.
    """
    content = _content(root / FILE_NAME)
    if len(content) != layout.CHECKPOINT_SIZE:
        return Checkpoint(), None
    marks = [mark for mark in (_mark(content, position) for position in layout.LOW_WATER_AT) if mark is not None]
    newest = max(marks, key=lambda mark: mark.sequence, default=None)
    # These fields have no checksum: a sector that a power cut damaged can hold anything.
    return Checkpoint(*(max(0, field) for field in layout.CHECKPOINT.unpack_from(content, 0))), newest


def write(root: Path, checkpoint: Checkpoint, low_water: LowWater | None = None) -> None:
    """Write both and flush them to the disk.

    The present mark stays if ``low_water`` is ``None``, or if its sequence is not above that of the present mark:
    another process wrote a newer one. The file is written in place, which needs no room on a full disk. A file that is
    missing or has another size is replaced by rename.

    Raises:
        StoreFull: no room for a new file.
        StoreUnusable: not a regular file, or it may not be written.
    """
    path = root / FILE_NAME
    content = _content(path)
    if len(content) != layout.CHECKPOINT_SIZE:
        whole = bytearray(layout.CHECKPOINT_SIZE)
        for position, piece in _pieces(bytes(whole), checkpoint, low_water):
            whole[position : position + len(piece)] = piece
        document.replace_file(path, bytes(whole))
    else:
        _write_in_place(path, _pieces(content, checkpoint, low_water))


def is_mark(content: bytes | memoryview | Mapping, position: int) -> bool:
    """Tell whether a whole low-water mark stands in the slot at ``position`` of the file's content."""
    return _mark(bytes(content), position) is not None


def _pieces(content: bytes, checkpoint: Checkpoint, low_water: LowWater | None) -> list[tuple[int, bytes]]:
    pieces = [(0, layout.CHECKPOINT.pack(*astuple(checkpoint)))]
    sequences = {at: mark.sequence if (mark := _mark(content, at)) else -1 for at in layout.LOW_WATER_AT}
    if low_water is not None and low_water.sequence > max(sequences.values()):
        older = min(sequences, key=sequences.__getitem__)
        pieces.append((older, _slot(low_water)))
    return pieces


def _slot(low_water: LowWater) -> bytes:
    fields = layout.LOW_WATER.pack(*astuple(low_water), 0)[:_SLOT_WITHOUT_CRC]
    return layout.LOW_WATER.pack(*astuple(low_water), zlib.crc32(fields))


def _mark(content: bytes, position: int) -> LowWater | None:
    *fields, crc = layout.LOW_WATER.unpack_from(content, position)
    # A slot of zeros, as a broker leaves it, does not pass: the CRC-32 of zeros is not zero.
    if zlib.crc32(content[position : position + _SLOT_WITHOUT_CRC]) != crc or min(fields) < 0:
        return None
    return LowWater(*fields)


def _write_in_place(path: Path, pieces: list[tuple[int, bytes]]) -> None:
    descriptor = _open(path, os.O_WRONLY)
    try:
        for position, piece in pieces:
            _write_piece(path, descriptor, position, piece)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _write_piece(path: Path, descriptor: int, position: int, piece: bytes) -> None:
    try:
        os.pwrite(descriptor, piece, position)
    except OSError as error:
        if error.errno in NO_ROOM:  # a file system that never writes in place; the old mark stays
            raise as_store_error(error, f"{path} cannot be written") from error
        raise


def _content(path: Path) -> bytes:
    try:
        descriptor = _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return b""
    try:
        with store_errors(f"{path} cannot be read"):
            return os.pread(descriptor, layout.CHECKPOINT_SIZE + 1, 0)
    finally:
        os.close(descriptor)


def _open(path: Path, access: int) -> int:
    # Not blocking, because the file may be a pipe.
    try:
        descriptor = os.open(path, access | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise as_store_error(error, f"{path} cannot be opened") from error
    try:
        with store_errors(f"{path} cannot be looked at"):
            check_plain(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
