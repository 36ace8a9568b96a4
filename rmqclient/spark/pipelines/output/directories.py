"""Directories: flushed to the disk, and exchanged in one step.

``renameat2(2)`` with RENAME_EXCHANGE exchanges two directories: a process that opens a path finds either the whole old
directory or the whole new one. ext4, xfs, btrfs, tmpfs and overlayfs support this; most network file systems do not.
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
    """Return the directory for unfinished files: beside the target, on the same file system."""
    return target.with_name(target.name + ".work")


@contextmanager
def only_writer(work: Path, target: Path) -> Iterator[None]:
    """Make the two directories, and keep other writers out.

    Raises StoreBusy if there is another writer, and ValueError if the directories are on two file systems.
    """
    for directory in (target, work):
        directory.mkdir(parents=True, exist_ok=True)
    if target.stat().st_dev != work.stat().st_dev:
        raise ValueError(f"{work} and {target} are on two file systems: files cannot be renamed from one to the other")
    with (work / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreBusy(f"another process writes to {target}: wait for it, or stop it") from None
        yield


def exchange(first: Path, second: Path) -> None:
    """Exchange two directories of one file system, and flush the exchange to the disk.

    Raises OSError: EINVAL or ENOSYS if the file system cannot exchange them in one step.
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
    """Flush every file below a directory, and the directories themselves, to the disk."""
    for parent, _, names in os.walk(directory):
        for name in names:
            sync_file(Path(parent, name))
        sync_directory(Path(parent))
