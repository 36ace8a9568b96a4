"""Standing: which processes hold bytes of a lock file, and which of them stand still.

The kernel takes a lock from a process that dies, and from no process that was only stopped: by Ctrl-Z, by a debugger,
by ``docker pause``. Whoever waits for such a lock is told who has it, and how it goes on. Only processes of this PID
namespace and of this user are seen, all of them by root.

This file imports nothing of the package, and no ``pathlib``, which takes longer than ``rmq check``, which imports it
(:mod:`rmqclient.store.observe.reading`).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

_IN_USE = re.compile(r"^lock:.* OFDLCK .* 0 0$", re.MULTILINE)
"""Of who has the store open: the byte BROKER_BYTE, shared or not."""
_LOCK_FILES = ("/lock", "/lock (deleted)")
_EXCLUSIVE_LOCK = ("OFDLCK", "WRITE")
_NOWHERE = (-1, -1)
"""As device and inode."""


class Holder(NamedTuple):
    """A process that has the lock file open."""

    pid: int
    command: str
    """Its command line, shortened."""
    stands: str
    """Why it stands still: ``stopped``, ``held by a debugger`` or ``frozen``; empty while it can run."""
    held: tuple[int, ...]
    """The bytes that it holds exclusively, ascending."""

    @property
    def remedy(self) -> str:
        """What makes the process go on; empty while it can run."""
        return _REMEDIES.get(self.stands, "").format(self.pid)

    def __str__(self) -> str:
        which = f"process {self.pid} ({self.command})"
        return f"{which}, which stands still, {self.stands}: {self.remedy}" if self.stands else which


_REMEDIES = {
    "stopped": "let it go on with `fg` or `kill -CONT {0}`, or end it with `kill -KILL {0}`",
    "held by a debugger": "let it go on in the debugger, or end it with `kill -KILL {0}`",
    "frozen": "let its container go on, as with `docker unpause`, or end it",
}


def holders(path: str, byte: int) -> list[Holder]:
    """Return the processes that hold a byte of the lock file at ``path`` exclusively, as far as they can be seen."""
    return [each for each in _with_open(path) if byte in each.held]


def holds(pid: int, path: str, byte: int) -> bool:
    """Tell whether the process that has this number here holds a byte of the lock file at ``path`` exclusively.

    A number that stands in a store may come from another PID namespace, where it names another process than here. Who
    holds the byte is the one that was meant, and if it counts processes as this one does, so are the numbers it wrote.
    """
    return byte in held_by(pid, path)


def held_by(pid: int, path: str) -> set[int]:
    """Return the bytes that a process holds exclusively; none if its number means another process here."""
    return (_held(pid, _identity(path)) if _counts_as_this_process(pid) else None) or set()


def has_open(pid: int, path: str) -> bool:
    """Tell whether the process that has this number here has a file open, and so is the one that was meant."""
    return _counts_as_this_process(pid) and _held(pid, _identity(path)) is not None


def _counts_as_this_process(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/ns/pid").st_ino == os.stat("/proc/self/ns/pid").st_ino
    return False


def _identity(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return _NOWHERE
    return status.st_dev, status.st_ino


class Onlooked(NamedTuple):
    """What one look at the processes finds of a store."""

    standing: list[Holder]
    """Those that stand still and have its lock file open."""
    left_behind: list[Holder]
    """Those that have a store open whose lock file was removed from the path.

    A process that has closed the store may keep the file open. What it holds of it then is not the store.
    """


def look(path: str) -> Onlooked:
    """Look once at every process that can be seen: at those that have the store's file ``lock`` at ``path`` open."""
    identity, gone = _identity(path), f"{os.path.realpath(path)} (deleted)"
    found = Onlooked([], [])
    for pid in _pids():
        links = list(_lock_files(pid))
        if any(identity == _identity(f"/proc/{pid}/fd/{descriptor}") != _NOWHERE for descriptor, _ in links):
            holder = Holder(pid, _command(pid), _stands(pid), tuple(sorted(_held(pid, identity) or ())))
            if holder.stands:
                found.standing.append(holder)
        if any(link == gone and _is_in_use(pid, descriptor) for descriptor, link in links):
            found.left_behind.append(Holder(pid, _command(pid), _stands(pid), ()))
    return found


def in_use() -> dict[str, list[Holder]]:
    """Return the directories that have a store which is open, and who has it open, as far as they can be seen.

    A directory has the name that it has now, whatever it was called when its store was opened.
    """
    found: dict[str, list[Holder]] = {}
    for pid in _pids():
        for link in set(_open_stores(pid)):
            if os.path.basename(link) == "lock":
                found.setdefault(os.path.dirname(link), []).append(Holder(pid, _command(pid), _stands(pid), ()))
    return found


def _open_stores(pid: int) -> Iterator[str]:
    """Yield the lock files of which a process holds the byte that says that it has the store open."""
    yield from (link for descriptor, link in _lock_files(pid) if _is_in_use(pid, descriptor))


def _lock_files(pid: int) -> Iterator[tuple[str, str]]:
    """Yield the descriptors of a process that are of files named ``lock``, and their paths."""
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                link = os.readlink(f"/proc/{pid}/fd/{descriptor}")
                if link.endswith(_LOCK_FILES):
                    yield descriptor, link


def _is_in_use(pid: int, descriptor: str) -> bool:
    with contextlib.suppress(OSError):
        return _IN_USE.search(_text(f"/proc/{pid}/fdinfo/{descriptor}")) is not None
    return False


def _pids() -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from (int(name) for name in os.listdir("/proc") if name.isdigit())


def _with_open(path: str) -> Iterator[Holder]:
    identity = _identity(path)
    for pid in _pids():
        found = _held(pid, identity)
        if found is not None:
            yield Holder(pid, _command(pid), _stands(pid), tuple(sorted(found)))


def _held(pid: int, identity: tuple[int, int]) -> set[int] | None:
    """Return the bytes that a process holds exclusively; None if it does not have the file open, or cannot be seen."""
    held: set[int] | None = None
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                status = os.stat(f"/proc/{pid}/fd/{descriptor}")
                if (status.st_dev, status.st_ino) == identity:
                    held = (held or set()) | set(_bytes_of(_text(f"/proc/{pid}/fdinfo/{descriptor}")))
    return held


def _bytes_of(fdinfo: str) -> Iterator[int]:
    """Yield the bytes of lines such as ``lock: 1: OFDLCK  ADVISORY  WRITE -1 fe:00:523 2 2``."""
    for line in fdinfo.splitlines():
        words = line.split()
        if words[:1] == ["lock:"] and (words[2], words[4]) == _EXCLUSIVE_LOCK and words[8].isdigit():
            yield from range(int(words[7]), int(words[8]) + 1)


def _stands(pid: int) -> str:
    """Say why a process stands still; empty while it can run, or if it cannot be seen."""
    try:
        state = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
    if state in ("T", "t"):
        return "stopped" if state == "T" else "held by a debugger"
    with contextlib.suppress(OSError):
        for line in _text(f"/proc/{pid}/cgroup").splitlines():
            if line.startswith("0::/") and "frozen 1" in _text(f"/sys/fs/cgroup{line[3:]}/cgroup.events"):
                return "frozen"
    return ""


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = _text(f"/proc/{pid}/cmdline").split("\0")
        return " ".join(words).strip()[:80] or "no command line"
    return "ended meanwhile"


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
