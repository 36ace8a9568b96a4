"""Records a run of a store into a timeline: at every sync, at crash points inside an operation, and when told to.

Nothing of the store is replaced. ``os.fsync`` and ``os.fdatasync`` are taken over while it records. A crash point sends
a signal to this process; the handler is a C function pointer, so it runs inside of the append, before the next step of
it, and not when the append has returned, as Python's own handlers do.
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

from rmqclient.store import crash_points
from rmqclient.store.crash_points import CrashPoint
from tests.images.timeline import Entries, Timeline

NOT_RECORDED = ("shared", "shared.building")
"""Runtime files are not believed after a power cut."""

_LARGEST_FILE = 1 << 20
_POINT_REACHED = signal.SIGUSR2
_handler_type = ctypes.CFUNCTYPE(None, ctypes.c_int)
_libc = ctypes.CDLL(None)
_libc.signal.restype = ctypes.c_void_p
_libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)


class Recorder:
    """Looks at a directory. ``watch`` is called with the number of each moment, after it was recorded."""

    def __init__(self, root: Path, watch: Callable[[int], None]) -> None:
        self.timeline = Timeline()
        self._root = str(root)
        self._watch = watch
        self._descriptors: dict[int, int] = {}
        self._directory_inodes: dict[int, str] = {}
        self._failures: list[BaseException] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Begin with what stands there, as durable, and record until the block ends."""
        fsync, fdatasync = os.fsync, os.fdatasync
        handler = _handler_type(lambda _: self._at_crash_point())
        self.moment()
        self.timeline.sync_everything()
        os.fsync = os.fdatasync = self._sync
        previous = _libc.signal(_POINT_REACHED, ctypes.cast(handler, ctypes.c_void_p))
        try:
            yield
        finally:
            os.fsync, os.fdatasync = fsync, fdatasync
            self.disarm()
            _libc.signal(_POINT_REACHED, previous)
            for descriptor in self._descriptors.values():
                os.close(descriptor)

    def arm(self, point: CrashPoint, passes: int = 0) -> None:
        """Record a moment when the point is reached next."""
        crash_points.arm(point, passes=passes, signal_number=_POINT_REACHED)

    def disarm(self) -> None:
        """Record at no crash point."""
        crash_points.arm(CrashPoint.APPEND_LOCKED, passes=1 << 40, signal_number=_POINT_REACHED)

    def moment(self) -> int:
        """Record what stands there now; return the number of the moment."""
        if self._failures:
            raise self._failures[0]
        timeline = self.timeline
        timeline.moment += 1
        self._look_at(self._root, "")
        self._watch(timeline.moment)
        return timeline.moment

    def _look_at(self, path: str, directory: str) -> None:
        entries: Entries = {}
        with os.scandir(path) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    self._look_at(entry.path, f"{directory}/{entry.name}" if directory else entry.name)
                elif not entry.name.startswith(NOT_RECORDED) and entry.stat().st_size <= _LARGEST_FILE:
                    inode = entries[entry.name] = entry.inode()
                    if inode not in self._descriptors:
                        # Open as long as the timeline lives, so that no other file gets the number of the inode.
                        self._descriptors[inode] = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC)
                    content = os.pread(self._descriptors[inode], _LARGEST_FILE, 0)
                    self.timeline.note_file(directory, inode, content)
        if directory not in self.timeline.directories:
            self._directory_inodes[os.stat(path).st_ino] = directory  # noqa: PTH116 - of a string, thousands of times
        self.timeline.note_directory(directory, entries)

    def _sync(self, fd: FileDescriptorLike) -> None:
        moment = self.moment()
        status = os.fstat(fd if isinstance(fd, int) else fd.fileno())
        if stat.S_ISDIR(status.st_mode):
            self.timeline.directories[self._directory_inodes[status.st_ino]].sync(moment)
        elif status.st_ino in self.timeline.files:
            self.timeline.files[status.st_ino].sync(moment)

    def _at_crash_point(self) -> None:
        try:
            self.moment()
        except BaseException as error:  # noqa: BLE001 - nothing can be raised through the code that was interrupted
            self._failures.append(error)
