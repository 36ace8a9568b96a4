"""The history of one process: what it did and saw, in records of 32 bytes that no kill takes back.

The file is sparse and mapped MAP_SHARED, and a record is written into it in place. What was stored into such a mapping
belongs to the page cache, so ``kill -9`` keeps it as it keeps what ``write`` has written, and costs a tenth: with one
``write`` a record, ten million messages would spend longer on the evidence than on the queue. The kind is the last byte
and is stored last, so that a record which its process did not finish has kind 0 and is left out.

====  ====  =======  =============================================================================================
byte  size  field    meaning
====  ====  =======  =============================================================================================
   0     8  at       CLOCK_BOOTTIME in ns
   8     8  offset   queue offset; of a grant the committed offset
  16     8  subject  message: producer << 40 | its number; grant: epoch; nemesis: number of the process
  24     2  queue    number of the message queue in the plan
  26     1  group    number of the group in the plan
  27     1  detail   messages of a send; 1 for a right body; signal of a kill
  28     2  thread   of this process, from 0 on
  30     1  attempt  delivery attempt
  31     1  kind     :class:`Kind`, 0 while the record is not whole
====  ====  =======  =============================================================================================

All little-endian. The name of the file is the number of the process.
"""

from __future__ import annotations

import enum
import itertools
import mmap
import os
import struct
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_RECORD = struct.Struct("<QqQHBBHBB")

DTYPE = np.dtype(
    [
        ("at", "<u8"),
        ("offset", "<i8"),
        ("subject", "<u8"),
        ("queue", "<u2"),
        ("group", "u1"),
        ("detail", "u1"),
        ("thread", "<u2"),
        ("attempt", "u1"),
        ("kind", "u1"),
    ]
)
Records = NDArray[Any]

CAPACITY = 1 << 26
"""Records of one process; the file is sparse, so that only what is written takes room."""

now = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)


class Kind(enum.IntEnum):
    """What a record says. ``at`` is when it had happened, unless another time is named."""

    SEND = 1  #: a send is about to begin
    SENT = 2  #: it returned
    SEND_FAILED = 3  #: it raised; nothing was written
    SEND_UNKNOWN = 4  #: it raised; the message may be stored
    HANDLE = 5  #: a handler call begins
    HANDLED = 6  #: it is about to return
    HANDLE_FAILED = 7  #: it is about to raise
    COMMIT = 8  #: an acknowledgement was taken; ``at`` is before it was asked for
    REFUSED = 9  #: it was refused, because its epoch is old; ``at`` as above
    GRANT = 10  #: this process owns a queue from now on
    FIRST_TAKE = 11  #: of a grant: the offset of the first message taken
    RENEW = 12  #: a lease was lengthened; ``at`` is before it was
    RELEASE = 13  #: this process is about to give a queue back
    LOST = 14  #: a lease could not be lengthened: the queue is somebody else's
    SAMPLE = 15  #: a committed offset as an onlooker read it; ``at`` is after that
    START = 16  #: this process is ready
    EXIT = 17  #: this process has left the store; ``offset`` descriptors and ``detail`` maps of it are left
    KILL = 18  #: nemesis: about to send SIGKILL to a process
    STOP = 19  #: nemesis: about to send SIGSTOP
    RESUME = 20  #: nemesis: has sent SIGCONT
    LEAVE = 21  #: nemesis: about to ask a worker to leave
    JOIN = 22  #: nemesis: has started a process
    CLOCK = 23  #: nemesis: has set the wall clock; ``offset`` in ms from the host's
    KILLED = 24  #: nemesis: a process that it killed is gone; until then it may have done something


class History:
    """What one process writes down; for any of its threads."""

    def __init__(self, directory: Path, process: int) -> None:
        fd = os.open(directory / str(process), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.ftruncate(fd, CAPACITY * _RECORD.size)
        self._map = mmap.mmap(fd, CAPACITY * _RECORD.size)
        os.close(fd)
        self._next = itertools.count(0, _RECORD.size).__next__
        self.process = process

    def write(
        self,
        kind: int,
        at: int,
        subject: int = 0,
        offset: int = 0,
        queue: int = 0,
        group: int = 0,
        detail: int = 0,
        thread: int = 0,
        attempt: int = 0,
    ) -> None:
        """Write one record. Raises ``struct.error`` for a value that does not fit, and behind ``CAPACITY``."""
        _RECORD.pack_into(self._map, self._next(), at, offset, subject, queue, group, detail, thread, attempt, kind)


def read(directory: Path, process: int) -> Records:
    """Return what a process wrote, in the order of writing."""
    path = directory / str(process)
    if not path.exists() or path.stat().st_size == 0:  # it was killed before its first record
        return np.empty(0, DTYPE)
    with path.open("rb", buffering=0) as file:
        end = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
        file.seek(0)
        records: Records = np.fromfile(file, DTYPE, end // _RECORD.size)
    whole: Records = records[records["kind"] != 0]
    return whole
