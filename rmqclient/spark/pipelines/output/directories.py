"""Directories: written to the disk, and exchanged in one step.

``renameat2(2)`` with RENAME_EXCHANGE lets two directories take each other's place: who looks for a file under a path
finds the old directory or the new one, whole, and never both or none. ext4, xfs, btrfs, tmpfs and overlayfs have it,
network file systems mostly not.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqclient.store.errors import StoreBusy
from rmqclient.store.files.mapped_file import sync_directory, sync_file

_FROM_WORKING_DIRECTORY = -100
_EXCHANGE = 2


def work_directory_of(target: Path) -> Path:
    """Return where what is not ready to be read is kept: beside the target, on the same file system."""
    return target.with_name(target.name + ".work")


@contextmanager
def only_writer(work: Path, target: Path) -> Iterator[None]:
    """Make the two directories, and keep other writers out. Raises StoreBusy when there is one, ValueError."""
    for directory in (target, work):
        directory.mkdir(parents=True, exist_ok=True)
    if target.stat().st_dev != work.stat().st_dev:
        raise ValueError(f"{work} and {target} lie on two file systems: files cannot be renamed across")
    with (work / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreBusy(f"another process writes to {target}: wait for it, or stop it") from None
        yield


def exchange(first: Path, second: Path) -> None:
    """Let two directories of one file system take each other's place, and write that to the disk.

    Raises OSError: EINVAL or ENOSYS where that cannot be done in one step.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(first))
    names = os.fsencode(first), os.fsencode(second)
    if library.renameat2(_FROM_WORKING_DIRECTORY, names[0], _FROM_WORKING_DIRECTORY, names[1], _EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(first), None, str(second))
    sync_directory(first.parent)
    sync_directory(second.parent)


def sync_files(directory: Path) -> None:
    """Write every file below a directory, and their names, to the disk."""
    for parent, _, names in os.walk(directory):
        for name in names:
            sync_file(Path(parent, name))
        sync_directory(Path(parent))
