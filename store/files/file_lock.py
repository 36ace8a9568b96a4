"""The lock file: who is alive in a store directory and who holds which role.

Locks are single bytes of ``<root>/lock``. The kernel releases them when their holder dies, however it dies,
so no process has to clean up after another::

    byte         name              held                  by whom
    -----------  ----------------  --------------------  -------------------------------------------------------
    0            BROKER_BYTE       shared, for life      every process that has the store open; the first opener
                                                         takes it exclusively while it recovers. A RocketMQ
                                                         broker holds it exclusively for life
    1            GATE_BYTE         exclusive, short      a process that opens or closes the store
    2            HOUSEKEEPER_BYTE  exclusive, as a role  the housekeeper
    3            TOPIC_BYTE        exclusive, short      a process that makes a topic or writes ``config/``
    4            SUPERVISOR_BYTE   shared, for life      supervisors: others leave the housekeeper's role to them
    5            INDEX_BYTE        exclusive, short      a process that adds index entries or removes index files
    7            COMPACTION_BYTE   exclusive, a pass     a process that compacts a queue of a compact topic
    8            FOLLOWER_BYTE     exclusive, for life   the process that follows the primary of a replica
    9            SENDER_BYTE       exclusive, for life   the process that sends the log to replicas
    10           HISTORY_BYTE      exclusive, short      a process that writes the history, or renames the marks
    4096 + slot  MEMBER_BYTES      exclusive, for life   a member of a group; its release is the death notice
    8192 + slot  WORKER_BYTES      exclusive, for life   a worker; its release is the death notice
    12288 + n    ONCE_BYTES        exclusive, short      a process that sends with a key that has this number
    2**32 + n    OWNER_BYTES       exclusive, for life   an owner of mutexes, with the number n (lock_owner.py)
    65536 + n    CRON_BYTES        exclusive, short      a process that sends the messages of a schedule; n is a
                                                         hash of its name

The kind of lock is the open file description lock (``F_OFD_SETLK``), because the other two kinds each fail here:

- A POSIX record lock (``fcntl.lockf``) belongs to the process, and goes when the process closes *any* descriptor
  of the file, such as that of a backup tool running in it. A broker's lock is one, taken with Java's
  ``FileChannel.tryLock(0, 1, false)`` (``DefaultMessageStore.start``); the two kinds do exclude each other.
- ``flock`` neither excludes a broker nor locks single bytes.

An open file description lock has a price:

- It belongs to the *description*, which a forked child shares. It lives until the last descriptor is closed: a
  child that kept its copy would keep the locks of a dead parent, and one that unlocked would unlock its parent.
  So every handle is closed in a forked child before any of its code runs, and says :class:`StoreClosed` there.
  A fork waits for an opening under way in another thread. (The child of ``subprocess`` holds a copy
  only until it has become another program, by ``O_CLOEXEC``. Native code that forks and does not
  become another program is not covered.)
- One handle never excludes itself, so neither do the threads that share it: ``try_exclusive`` on a byte that the
  handle holds succeeds. :meth:`LockFile.held` also excludes the other threads.
- Two handles exclude each other, also within one process.

A lock guards the file that was opened, and everything else in a store goes by name. When the directory was removed,
renamed or replaced, the name leads elsewhere, and the lock guards nothing that is found there. So each section
(:meth:`LockFile.held`) and whatever else opens, makes or removes a file by its name compares the two first
(:meth:`.LockPlace.check`). No other file can get the inode of ``lock`` while a process has it open.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import struct
import time
from pathlib import Path

from rmqclient.store.errors import StoreBusy, StoreClosed, StoreUnusable, store_errors
from rmqclient.store.files import fork
from rmqclient.store.files.descriptors import above_streams
from rmqclient.store.files.file_system import check_plain
from rmqclient.store.files.lock_place import LockPlace
from rmqclient.store.files.sharing import share_file
from rmqclient.store.kernel._kernel import HeldByte
from rmqclient.store.layout import MEMBER_SLOTS, WORKER_SLOTS
from rmqclient.store.native_threads import sleep, threading
from rmqclient.store.threads.logs import Log
from rmqclient.store.threads.standing import Holder, holders

BROKER_BYTE = 0
GATE_BYTE = 1
HOUSEKEEPER_BYTE = 2
TOPIC_BYTE = 3
SUPERVISOR_BYTE = 4
INDEX_BYTE = 5
COMPACTION_BYTE = 7
FOLLOWER_BYTE = 8
SENDER_BYTE = 9
HISTORY_BYTE = 10
MEMBER_BYTES = 4096
WORKER_BYTES = 8192
ONCE_BYTES = 12_288
ONCE_STRIPES = 1_024
CRON_BYTES = 65_536
CRON_STRIPES = 4_096

CONTENT = b"lock"
"""Content of the file. RocketMQ writes it in ``DefaultMessageStore.start``; no program reads it."""

_NAMES = {
    BROKER_BYTE: "the store itself",
    GATE_BYTE: "the gate for opening and closing",
    HOUSEKEEPER_BYTE: "the housekeeper role",
    TOPIC_BYTE: "topics and config files",
    SUPERVISOR_BYTE: "the supervisors",
    INDEX_BYTE: "the index",
    COMPACTION_BYTE: "the compaction of a queue",
    FOLLOWER_BYTE: "following the primary",
    SENDER_BYTE: "sending the log",
    HISTORY_BYTE: "the history",
}

_log = Log(__name__)

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.05
_LOOK_AFTER_S = 5.0
"""After so much waiting it is asked whether who has the byte stands still. No step under a byte takes so long."""

# struct flock of 64-bit Linux: type, whence, start, length, pid, padding up to the alignment of a 64-bit word.
_FLOCK = struct.Struct("hhqqi0q")


class LockFile:
    """An open lock file. Open it once per process and share it; closing it releases every lock taken through it.

    Makes the file, mode 0600, if it is not there; the directory must exist. A handle that is garbage collected
    is closed with a ``ResourceWarning``.

    Raises:
        StoreUnusable: not permitted, a symbolic link, not a regular file, no directory, or on a read-only file
            system.
        StoreFull: no room to make the file.

    Every method but :meth:`close` raises :class:`StoreClosed` after :meth:`close` and in a forked child, and
    :class:`StoreUnusable` on a file system without such locks.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pid = os.getpid()
        self._sections: dict[int, threading.Lock] = {}
        self._own: set[int] = set()
        with fork.held_off:
            self._file = _open(path)
            fork.register(self)
        status = os.fstat(self._file.fileno())
        self.place = LockPlace(path, (status.st_dev, status.st_ino))
        self.check_in_place = self.place.check

    def try_exclusive(self, byte: int) -> bool:
        """Lock ``byte`` for this handle alone, without waiting; return whether that worked.

        A shared lock of this handle becomes exclusive in one step; when that fails it stays shared.
        """
        return self._set(byte, fcntl.F_WRLCK)

    def try_shared(self, byte: int) -> bool:
        """Lock ``byte`` together with other shared holders, without waiting; return whether that worked.

        An exclusive lock of this handle becomes shared in one step: no other handle can come in between.
        """
        return self._set(byte, fcntl.F_RDLCK)

    def unlock(self, byte: int) -> None:
        """Release ``byte``; nothing happens when this handle does not hold it."""
        self._set(byte, fcntl.F_UNLCK)

    def holds(self, byte: int) -> bool:
        """Tell whether this handle holds ``byte``, exclusively or shared, which :meth:`holder` does not see."""
        return byte in self._own

    def holder(self, byte: int) -> int | None:
        """Return the process whose lock keeps this handle from locking ``byte`` exclusively.

        ``None`` if the byte is free; the pid for a POSIX record lock, such as a RocketMQ broker's; 0 if the kernel
        cannot tell: for an open file description lock, or for a process of a container whose pids are not visible here.
        """
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(self._open_file(), fcntl.F_OFD_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else max(pid, 0)

    def wait_exclusive(self, byte: int, timeout_s: float) -> None:
        """Lock ``byte`` exclusively, waiting at most ``timeout_s`` seconds; 0 tries once.

        Two handles that both hold it shared and both wait here wait for each other until the time is up.

        Raises:
            StoreBusy: the time is up, or after 5 s the process that holds the byte is seen to stand still. The message
                names the byte and, if they can be seen, the processes that hold it, which ``holders`` has.
        """
        deadline = time.monotonic() + timeout_s
        look_at, pause_s = time.monotonic() + _LOOK_AFTER_S, _FIRST_PAUSE_S
        # Not F_OFD_SETLKW: only a signal ends that wait, and signals belong to the application.
        while not self.try_exclusive(byte):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise self._still_held(byte, timeout_s, holders(str(self.path), byte))
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + _LOOK_AFTER_S
                found = holders(str(self.path), byte)
                if found and all(each.stands for each in found):  # it may stand for hours
                    raise self._still_held(byte, timeout_s - left_s, found)
            sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def held(self, byte: int, timeout_s: float = 5.0) -> HeldByte:
        """Hold ``byte`` exclusively for the length of a ``with`` block; other threads are kept out as well.

        Not reentrant: the thread that holds it and asks again gets ``StoreBusy``. An exception from a signal handler,
        wherever it comes, leaves the byte free.

        Entering it raises:
            StoreBusy: the byte was not free within ``timeout_s`` seconds.
            StoreReplaced: as :meth:`.LockPlace.check`.
        """
        section = self._sections.setdefault(byte, threading.Lock())
        return HeldByte(self, self._file, self._own, section, byte, timeout_s)

    def busy_here(self, byte: int, waited_s: float) -> StoreBusy:
        """Return the error that a byte is held by another thread of this process."""
        return StoreBusy(f"{self.path}: {byte_name(byte)} was held for {waited_s:g} s by a thread of this process")

    @property
    def is_open(self) -> bool:
        """Whether it can still lock anything: not after :meth:`close`, and not in a forked child."""
        return not self._file.closed

    def close(self) -> None:
        """Release every lock of this handle. Closing twice, or in a forked child, does nothing."""
        self._file.close()

    def leave_to_parent(self) -> None:
        """Close the handle in a forked child, whose copy of the descriptor would keep the locks of a dead parent."""
        self._file.close()

    def _set(self, byte: int, kind: int) -> bool:
        wanted = _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0)
        try:
            fcntl.fcntl(self._open_file(), fcntl.F_OFD_SETLK, wanted)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise StoreUnusable(f"{self.path}: cannot be locked: {error.strerror}") from error
        (self._own.discard if kind == fcntl.F_UNLCK else self._own.add)(byte)
        return True

    def _open_file(self) -> io.FileIO:
        if self._pid != os.getpid():
            raise StoreClosed(f"{self.path}: opened by process {self._pid}, which this one was forked from")
        if self._file.closed:
            raise StoreClosed(f"{self.path}: the lock file was closed")
        return self._file

    def _still_held(self, byte: int, waited_s: float, found: list[Holder]) -> StoreBusy:
        pid = self.holder(byte)
        by_whom = " and ".join(map(str, found)) or (f"process {pid}" if pid else "a process or handle that is not seen")
        busy = StoreBusy(f"{self.path}: {byte_name(byte)} was held for {max(waited_s, 0):.3g} s by {by_whom}")
        busy.holders = tuple(each.pid for each in found) or ((pid,) if pid else ())
        return busy


def byte_name(byte: int) -> str:
    """Return the name of a byte of the lock file, for error messages."""
    if MEMBER_BYTES <= byte < MEMBER_BYTES + MEMBER_SLOTS:
        return f"member slot {byte - MEMBER_BYTES}"
    if WORKER_BYTES <= byte < WORKER_BYTES + WORKER_SLOTS:
        return f"worker slot {byte - WORKER_BYTES}"
    if ONCE_BYTES <= byte < ONCE_BYTES + ONCE_STRIPES:
        return f"the keys of number {byte - ONCE_BYTES}"
    if CRON_BYTES <= byte < CRON_BYTES + CRON_STRIPES:
        return f"schedule {byte - CRON_BYTES}"
    return _NAMES.get(byte, f"byte {byte}")


def _open(path: Path) -> io.FileIO:
    with store_errors(f"{path}: the lock file cannot be opened"):
        # The mode of FileIO does not matter: the opener chooses the flags.
        file = io.FileIO(path, "r+", opener=_open_descriptor)
    try:
        with store_errors(f"{path}: the lock file cannot be made"):
            _check_and_fill(path, file)
    except BaseException:
        file.close()
        raise
    return file


def _open_descriptor(path: str, _flags: int) -> int:
    # O_NONBLOCK does nothing to a regular file; a pipe in its place would be waited for.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    return above_streams(os.open(path, flags, 0o600))


def _check_and_fill(path: Path, file: io.FileIO) -> None:
    found = os.fstat(file.fileno())
    check_plain(path, found)
    if found.st_size == 0:
        if found.st_uid == os.geteuid():
            share_file(file.fileno(), path.parent)
        # Another process that sees it empty writes the same bytes.
        os.pwrite(file.fileno(), CONTENT, 0)
