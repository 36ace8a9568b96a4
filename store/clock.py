"""Clock: the one place where the store, and what is built on it, reads time.

=====================  ===============================================  ================================
function               tells                                            a test moves it
=====================  ===============================================  ================================
``wall_ns, wall_ms``   the time of day, since 1970                      yes
``elapsed``            seconds for pauses, intervals and timeouts       yes
``boottime``           ns for leases and heartbeats                     no: they say whether a process lives
``time.monotonic``     deadlines for locks, processes and the network   no
=====================  ===============================================  ================================

**A clock for tests.** :func:`make` puts a file ``clock`` into an empty directory, before a store is made there. Every
process that has this store open follows that clock: each reads its words in the mapped file, under an address that
never changes (``read_clock`` of the kernel), so :func:`advance` moves all of them at once. The words of every other
process are zeros. A store keeps its clock for life: none can be put into a directory that holds a store.

A process follows one clock. So it has either stores open that follow the host, or one with a clock of its own, and
:func:`enter` refuses another. An application under test that opens the store of production is told so, before it writes
times that are wrong there.

The file::

    byte  size  field              meaning
    ----  ----  -----------------  -------
       0     8  ahead_ns           what the clock was moved forward
       8     8  extra_speed        seconds that pass beyond the real one in each real second
      16     8  wall_since_ns      CLOCK_REALTIME when the clock was made; it runs faster from then on
      24     8  boottime_since_ns  CLOCK_BOOTTIME at that moment
      32     4  moved              futex: +1 when the clock was moved, and when a sleeper shall look
      36     4  unused             0
      40     8  magic              RMQCLOCK
    ----  ----
      48
"""

from __future__ import annotations

import mmap
import os
import time
import weakref
from datetime import timedelta
from pathlib import Path
from typing import Final

from rmqclient.store import layout
from rmqclient.store.errors import ConfigMismatch, StoreCorrupt, store_errors
from rmqclient.store.files import fork
from rmqclient.store.files.descriptors import above_streams
from rmqclient.store.files.file_lock import LockFile
from rmqclient.store.kernel._kernel import Mapping, Words, boottime, read_clock
from rmqclient.store.kernel._kernel import elapsed as _elapsed_ns
from rmqclient.store.kernel._kernel import wall_clock as wall_ns
from rmqclient.store.native_threads import threading

__all__ = [
    "FASTEST",
    "FILE_NAME",
    "advance",
    "boottime",
    "elapsed",
    "elapsed_ns",
    "enter",
    "heard",
    "is_movable",
    "leave",
    "make",
    "move",
    "real_s",
    "real_s_to",
    "ring",
    "wait",
    "wall_ms",
    "wall_ns",
]

FILE_NAME: Final = "clock"
FASTEST: Final = 1_000
"""Most seconds that may pass in a real one. Beyond, a pause of half a second is shorter than falling asleep."""
FURTHEST: Final = timedelta(days=366 * 50)
"""Most that a clock may be moved altogether: times in ns have 64 bits."""

_MAGIC = b"RMQCLOCK"
_AT = layout.CLOCK.at
_STORE_FILES = ("store.json", "commitlog")


def wall_ms() -> int:
    """Return the time of day in whole ms since 1970."""
    return wall_ns() // 1_000_000


def elapsed_ns() -> int:
    """Return ns that only grow while a store is open, and count the time of a suspended machine."""
    return _elapsed_ns()


def elapsed() -> float:
    """Return :func:`elapsed_ns` in seconds."""
    return _elapsed_ns() / 1e9


def real_s(seconds: float) -> float:
    """Return how many seconds pass on the host in so many of this clock, if nobody moves it."""
    speed = _words.load(_AT["extra_speed"])
    return seconds / (speed + 1) if speed else seconds


def real_s_to(ms: int) -> float:
    """Return how many seconds pass on the host until the ms begins that is ``ms`` behind the present one."""
    return real_s((ms - wall_ns() % 1_000_000 / 1e6) / 1000)


def heard() -> int:
    """Return a number that changes when the clock is moved or :func:`ring` is called, for :func:`wait`."""
    return _words.load32(_AT["moved"])


def wait(before: int, seconds: float) -> None:
    """Sleep for so many real seconds; return early when the clock is moved or rung, at once if it was since before.

    ``before`` is :func:`heard`, called before the look that found nothing to do. Look again afterwards in any case.
    """
    if seconds > 0:
        _words.wait(_AT["moved"], before, seconds * 1000)


def ring() -> None:
    """Make the threads that sleep by this clock look, because one of them shall end."""
    _words.signal(_AT["moved"])


def is_movable() -> bool:
    """Tell whether this process follows the clock of a test."""
    return _follower.file is not None


def make(root: Path, *, factor: int = 1) -> None:
    """Give the store that will be made in ``root`` a clock that tests move; ``factor`` seconds pass in a real one.

    Raises ValueError for a factor that is no whole number from 1 to 1000, ConfigMismatch if a store or a clock is
    there, StoreUnusable, StoreFull.
    """
    if factor not in range(1, FASTEST + 1):
        raise ValueError(f"factor={factor!r}: give a whole number of seconds per second, from 1 to {FASTEST}")
    found = [name for name in (*_STORE_FILES, FILE_NAME) if (root / name).exists()]
    if found:
        raise ConfigMismatch(f"{root} has {found[0]!r}: only a store that is not made yet gets a clock for tests")
    with store_errors(f"{root} cannot be given a clock"):
        now = (0, factor - 1, time.time_ns(), boottime(), 0, b"", _MAGIC)
        building = root / f"{FILE_NAME}.building"
        building.write_bytes(layout.CLOCK.pack(*now).ljust(mmap.PAGESIZE, b"\0"))
        building.rename(root / FILE_NAME)


def advance(by: timedelta) -> None:
    """Move the clock forward, for every process that follows it, and wake the threads that sleep by it.

    Raises ConfigMismatch if this process follows the clock of the host, ValueError for a time that is negative or moves
    it over 50 years.
    """
    if not is_movable():
        raise ConfigMismatch("this process follows the clock of the host: only that of a store made for tests is moved")
    _move(_words, by)


def move(root: Path, by: timedelta) -> None:
    """Move the clock of the store in ``root`` forward, for the processes that have it open; this one need not.

    Raises ConfigMismatch if the store follows the clock of the host, ValueError as :func:`advance`.
    """
    with store_errors(f"{root / FILE_NAME} cannot be moved"):
        descriptor = _opened(root / FILE_NAME)
        if descriptor is None:
            raise ConfigMismatch(f"{root} follows the clock of the host: only that of a store made for tests is moved")
        try:
            _move(Words(Mapping(descriptor, mmap.PAGESIZE)), by)
        finally:
            os.close(descriptor)


def _move(words: Words, by: timedelta) -> None:
    ahead = words.load(_AT["ahead_ns"])
    if by < timedelta(0) or ahead / 1e9 + by.total_seconds() > FURTHEST.total_seconds():
        raise ValueError(f"by={by}: give a time that is not negative, and at most {FURTHEST.days} days altogether")
    words.add(_AT["ahead_ns"], by // timedelta(microseconds=1) * 1_000)
    words.signal(_AT["moved"])


def enter(root: Path, lock: LockFile) -> None:
    """Follow the clock of the store in ``root``, until :func:`leave`; every opening of a store enters, with its lock.

    A store whose lock was closed, or that nobody refers to any more, has left, too. Raises ConfigMismatch if the
    process has a store open that follows another clock, StoreCorrupt, StoreUnusable.
    """
    _follower.enter(root, lock)


def leave(lock: LockFile) -> None:
    """Let the store of a lock go. Without any, the process follows the clock of the host again."""
    _follower.leave(lock)


class _Follower:
    """Which clock this process follows, and for which open stores."""

    def __init__(self, page: Mapping) -> None:
        self._page = page
        self._changing = threading.Lock()
        self._locks: weakref.WeakSet[LockFile] = weakref.WeakSet()
        self._root: Path | None = None
        self.file: tuple[int, int] | None = None
        """Device and inode of the clock of the stores; None for the clock of the host."""
        fork.register(self)

    def enter(self, root: Path, lock: LockFile) -> None:
        with self._changing, store_errors(f"{root / FILE_NAME} cannot be followed"):
            descriptor = _opened(root / FILE_NAME)
            try:
                found = None if descriptor is None else _identity(descriptor)
                if not self._is_in_use():
                    self._follow(root, descriptor)
                elif found != self.file:
                    raise ConfigMismatch(self._refusal(root))
                self._locks.add(lock)
            finally:
                if descriptor is not None:
                    os.close(descriptor)

    def leave(self, lock: LockFile) -> None:
        with self._changing:
            self._locks.discard(lock)
            if not self._is_in_use():
                self._follow_host()

    def leave_to_parent(self) -> None:
        """Forget the stores of the parent in a forked child."""
        self._changing = threading.Lock()
        self._locks.clear()
        self._follow_host()

    def _is_in_use(self) -> bool:
        return any(lock.is_open for lock in self._locks)

    def _follow(self, root: Path, descriptor: int | None) -> None:
        self._follow_host()
        if descriptor is not None:
            self._page.show(descriptor)
            self.file = _identity(descriptor)
        self._root = root

    def _follow_host(self) -> None:
        if self.file is not None:
            ring()
            _show_nothing(self._page)
        self.file = self._root = None

    def _refusal(self, root: Path) -> str:
        is_test = self.file is not None
        one, other = ("a clock that tests move", "the clock of the host") if is_test else ("the clock of the host", "")
        return (
            f"{root} cannot be opened: this process has {self._root} open, which follows {one}, and {root} follows "
            f"{other or 'a clock that tests move'}: close the other store first, or give code under test the store of "
            "the test"
        )


def _opened(path: Path) -> int | None:
    """Return a descriptor of a clock; None if there is none. Raises StoreCorrupt."""
    try:
        descriptor = above_streams(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))
    except FileNotFoundError:
        return None
    content = os.pread(descriptor, layout.CLOCK.size, 0)
    if os.fstat(descriptor).st_size < mmap.PAGESIZE or layout.CLOCK.read(content)["magic"] != _MAGIC:
        os.close(descriptor)
        raise StoreCorrupt(path, _AT["magic"], "this is not the clock of a test: remove the file")
    return descriptor


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _show_nothing(page: Mapping) -> None:
    """Map words over the page that are all zeros."""
    descriptor = os.memfd_create("rmq-clock", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, mmap.PAGESIZE)
    page.show(descriptor)
    os.close(descriptor)


def _page_of_the_host() -> Mapping:
    descriptor = os.memfd_create("rmq-clock", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, mmap.PAGESIZE)
        return Mapping(descriptor, mmap.PAGESIZE)
    finally:
        os.close(descriptor)


_page = _page_of_the_host()
_words = Words(_page)
read_clock(_page)
_follower = _Follower(_page)
