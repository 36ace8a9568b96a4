"""Ephemeral: a directory for one run of a server, removed at its end. A later server removes what a killed one left.

It lies in shared memory (``/dev/shm``) if there is enough space, else among the temporary files. A lock on the
directory itself shows whether its server lives; the system frees it when the process dies.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the directory in it is made for this user alone
_PREFIX: Final = "rmq-ephemeral-"
ROOM_BYTES: Final = 512 << 20
"""Bytes that must be free in shared memory: containers often have only 64 MiB."""


@contextmanager
def ephemeral_root(places: tuple[Path, ...] | None = None) -> Iterator[Path]:
    """Make a directory for the length of a block. Raises OSError if that fails everywhere.

    ``places`` are the parent directories, the preferred one first; default: those that the module names.
    """
    candidates = places if places is not None else (_MEMORY, Path(tempfile.gettempdir()))
    for place in candidates:
        _remove_left(place)
    root, descriptor = _made(_with_room(candidates))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
        os.close(descriptor)


def _with_room(places: tuple[Path, ...]) -> Path:
    """Return the first place with enough space; otherwise the last one."""
    for place in places[:-1]:
        with suppress(OSError):
            if os.access(place, os.W_OK) and shutil.disk_usage(place).free >= ROOM_BYTES:
                return place
    return places[-1]


def _made(place: Path) -> tuple[Path, int]:
    """Return a new directory and its locked descriptor."""
    while True:
        root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        with suppress(OSError):  # another starting server took it for an abandoned one, and removes it
            descriptor = _locked(root)
            if descriptor is not None:
                return root, descriptor


def _remove_left(place: Path) -> None:
    with suppress(OSError):
        for left in place.glob(f"{_PREFIX}*"):
            with suppress(OSError):
                found = left.lstat()
                if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                    _remove_unless_locked(left)


def _remove_unless_locked(left: Path) -> None:
    descriptor = _locked(left)
    if descriptor is not None:
        shutil.rmtree(left, ignore_errors=True)
        os.close(descriptor)


def _locked(root: Path) -> int | None:
    """Return a locked descriptor of the directory; None if another process has the lock, or it is gone."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == root.stat().st_ino:
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
