"""Jobs: the functions that all frameworks run, and where they leave what they did.

Each worker, which runs one task at a time, counts in a cell of its own of a mapped file and appends what it timed to
another file. :func:`attach` says where, in each worker.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from array import array
from pathlib import Path

_CELLS = 64
_CELL_BYTES = 64
"""A cache line: two workers that count in one would wait for each other."""
_CELL_WORDS = _CELL_BYTES // 8
_SHORT_S = 0.001


class Tally:
    """How often tasks ran, over all workers, and how late those with a stamp were."""

    def __init__(self, directory: Path) -> None:
        self._times = directory / "times"
        path = directory / "tally"
        path.touch()
        self._file = path.open("r+b")
        os.ftruncate(self._file.fileno(), _CELLS * _CELL_BYTES)
        self._cells = memoryview(mmap.mmap(self._file.fileno(), 0)).cast("Q")
        self._own = self._done = 0

    def claim(self) -> None:
        """Take a cell that nobody else has; the first cell says how many were given away."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._cells[0] += 1
        self._own = self._cells[0] * _CELL_WORDS
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def mark(self) -> None:
        """Count one, in the cell that was claimed."""
        self._done = self._cells[self._own] = self._done + 1

    def keep(self, nanoseconds: int) -> None:
        """Keep a time, and count one."""
        with self._times.open("ab", buffering=0) as file:
            file.write(nanoseconds.to_bytes(8, "little", signed=True))
        self.mark()

    @property
    def total(self) -> int:
        """How often tasks have run so far."""
        return sum(self._cells[_CELL_WORDS::_CELL_WORDS])

    def times(self) -> array[int]:
        """Return all times that were kept."""
        found = array("q")
        if self._times.exists():
            found.frombytes(self._times.read_bytes())
        return found


_tally: Tally | None = None


def attach(directory: Path) -> None:
    """Count in the files of this directory from now on."""
    global _tally
    _tally = Tally(directory)
    _tally.claim()


def noop(argument: int) -> None:
    """Do nothing."""
    del argument
    assert _tally is not None
    _tally.mark()


def short(argument: int) -> None:
    """Wait for a millisecond."""
    del argument
    assert _tally is not None
    time.sleep(_SHORT_S)
    _tally.mark()


def stamp(argument: int) -> None:
    """Keep how long ago this nanosecond of CLOCK_MONOTONIC was."""
    now_ns = time.monotonic_ns()
    assert _tally is not None
    _tally.keep(now_ns - argument)
