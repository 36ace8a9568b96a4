"""Left behind: processes that a worker started and that outlive it, and other orphans.

The supervisor is the parent of every orphan below it, as process 1 of a container is anyway. When a worker was killed
or died, its messages are delivered again, and what it had started for them would run beside the next attempt: so the
supervisor kills what it has inherited. A worker that ended in order may leave processes, and a handler may start a
daemon, which is an orphan while its worker lives.

Nothing tells whose child an orphan was. The dead worker's are those that appeared shortly before its death was told; a
daemon of the same second is taken for one of them. Workers stay in the process group of the supervisor: so a terminal
stops and continues them all.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path

DEATH_TOLD_S = 1.0
"""What may pass from the death of a worker, when its children become orphans, until the supervisor is told of it."""

_PR_SET_CHILD_SUBREAPER = 36


class Orphans:
    """The processes that the main thread of this process is the parent of without having started them.

    What another thread starts is not among them. Without ``/proc`` it finds none. Methods take ``own``, the processes
    that the main thread did start, or that others wait for. Only the main thread may use it.
    """

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._older = frozenset(_children(os.getpid(), os.getpid()))
        self._found_at: dict[int, float] = {}

    def look(self, own: Collection[int]) -> None:
        """Find new ones, and take the ends of those that have ended."""
        living = [pid for pid in self._all() if pid not in own and not _has_ended(pid)]
        self._found_at = {pid: self._found_at.get(pid, time.monotonic()) for pid in living}

    def kill_new(self, own: Collection[int]) -> int:
        """Kill what a worker left behind whose death was just reported; return the number of killed processes."""
        self.look(own)
        since = time.monotonic() - DEATH_TOLD_S
        count = 0
        for pid in [pid for pid, found_at in self._found_at.items() if found_at >= since]:
            count += kill_descendants(pid) + 1
            os.kill(pid, signal.SIGKILL)  # nobody else has got its number: its end is not taken
        return count

    def _all(self) -> Iterator[int]:
        return (pid for pid in _children(os.getpid(), os.getpid()) if pid not in self._older)


def kill_descendants(pid: int) -> int:
    """Kill what a process has started, and what that has; return how many processes there were."""
    with contextlib.ExitStack() as opened:
        found = list(_descendants(pid, opened))
        for pidfd in found:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return len(found)


def _descendants(pid: int, opened: contextlib.ExitStack) -> Iterator[int]:
    """Return pidfds, which cannot hit another process that has got the number of one meanwhile."""
    for child in _children_of_threads(pid):
        try:
            pidfd = os.pidfd_open(child)
        except OSError:  # it has ended
            continue
        opened.callback(os.close, pidfd)
        if child in _children_of_threads(pid):
            yield pidfd
            yield from _descendants(child, opened)


def _children_of_threads(pid: int) -> set[int]:
    try:
        threads = [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return set()
    return {child for thread in threads for child in _children(pid, thread)}


def _children(pid: int, thread: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split()]
    except OSError:  # it has ended
        return []


def _has_ended(pid: int) -> bool:
    """Take the end of a child. It is gone, too, if somebody else has taken it."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
