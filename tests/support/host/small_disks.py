"""Small file systems to be filled, each mounted for the length of a ``with`` block. Mounting needs root."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from rmqclient.store import layout
from rmqclient.store.errors import NO_ROOM

_MIB = 1 << 20
_LEAST_STEP = 4_096
ROOM_FOR_A_STORE = 2 * layout.RUNTIME_SIZE
"""A runtime file, and the next one beside it while a store is opened."""

KINDS = ("tmpfs", "ext4", "xfs", "few inodes")
"""What :func:`small_disk` can mount, beside btrfs. The last is an ext4 whose inodes run out before its blocks do."""

_MAKE = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4"),
    "few inodes": ("mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4", "-N", "2048"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}
_SIZES = dict.fromkeys(("ext4", "few inodes"), ROOM_FOR_A_STORE + 32 * _MIB) | {"xfs": 320 * _MIB, "btrfs": 320 * _MIB}


class CannotMount(Exception):
    """There is no such file system here, or no right to mount one."""


@contextmanager
def small_disk(kind: str, scratch: Path, tmpfs_bytes: int = ROOM_FOR_A_STORE + 24 * _MIB) -> Iterator[Path]:
    """Make a file system inside ``scratch`` and mount it there. Raises CannotMount."""
    if os.geteuid() != 0:
        raise CannotMount("mounting a small file system needs root")
    point = scratch / "disk"
    point.mkdir(exist_ok=True)
    if kind == "tmpfs":
        _call("mount", "-t", "tmpfs", "-o", f"size={tmpfs_bytes},mode=700", "none", str(point))
    else:
        image = scratch / "image"
        with image.open("wb") as file:
            file.truncate(_SIZES[kind])
        _call(*_MAKE[kind], str(image))
        _call("mount", "-o", "loop", str(image), str(point))
    try:
        yield point
    finally:
        _call("umount", "--lazy", str(point))
        (scratch / "image").unlink(missing_ok=True)


@contextmanager
def small_disk_or_skip(scratch: Path) -> Iterator[Path]:
    """Mount a disk of a megabyte in memory inside ``scratch``; skip the test where that is not possible."""
    with ExitStack() as stack:
        try:
            disk = stack.enter_context(small_disk("tmpfs", scratch, _MIB))
        except CannotMount as error:
            pytest.skip(str(error))
        yield disk


class Filler:
    """Takes what is left of a disk, and gives it back."""

    def __init__(self, disk: Path, *, inodes: bool = False) -> None:
        self._path = disk / "filler"
        self._inodes = inodes

    def fill(self, leave: int = 0) -> None:
        """Take all room but ``leave`` bytes, or but so many inodes."""
        if self._inodes:
            self._take_inodes(leave)
            return
        with self._path.open("ab") as file:
            size = file.tell()
            step = 64 * _MIB
            while step >= _LEAST_STEP:
                try:
                    os.posix_fallocate(file.fileno(), size, step)
                    size += step
                except OSError as error:
                    if error.errno not in NO_ROOM:
                        raise
                    step //= 2
            file.truncate(max(0, size - leave))

    def free(self) -> None:
        """Give everything back."""
        if self._inodes:
            for path in self._path.iterdir():
                path.unlink()
        else:
            self._path.unlink(missing_ok=True)

    def _take_inodes(self, leave: int) -> None:
        self._path.mkdir(exist_ok=True)
        taken = []
        for number in range(1 << 20):
            try:
                path = self._path / f"{os.getpid()}-{number}"
                path.touch()
                taken.append(path)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                break
        for path in taken[:leave]:
            with suppress(FileNotFoundError):
                path.unlink()


def _call(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise CannotMount(f"{command[0]} is not installed") from None
    if done.returncode:
        raise CannotMount(f"{' '.join(command)}: {done.stderr.strip()}")
