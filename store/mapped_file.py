"""One preallocated file: it appears under its own name in full length, and is mapped as a whole.

- Blocks are reserved by ``posix_fallocate`` before the first store: a store into a hole on a full disk is SIGBUS,
  an allocation on a full disk is ENOSPC, which becomes :class:`StoreFull`.
- A file is made under a scratch name in the store's root and linked into its directory when it is whole. A process
  killed half-way leaves a scratch file, which recovery removes, and never a short file among the data, which
  RocketMQ would refuse to load. Two processes that make the same file at once both find it made.
- A file is never truncated while others may map it; removing it is safe, its mappings stay.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path

from store._kernel import Mapping
from store.crash_points import CrashPoint, reach
from store.errors import NO_ROOM, StoreCorrupt, StoreFull, StoreUnusable

SCRATCH_PREFIX = ".allocating-"

_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


def allocate(path: Path, size: int, scratch: Path) -> bool:
    """Make ``path`` with ``size`` zero bytes, made first inside ``scratch``, a directory of the same file system.

    Returns False when it was there already. Raises StoreFull when there is no room, and nothing is left behind.
    """
    if path.exists():
        return False
    temporary = scratch / f"{SCRATCH_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _allocate_at(temporary, size)
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in NO_ROOM:
            raise StoreFull(f"no room for {path} of {size} bytes ({error.strerror}); nothing was written") from error
        raise
    finally:
        temporary.unlink(missing_ok=True)
    reach(CrashPoint.FILE_ALLOCATED)
    return True


def _allocate_at(path: Path, size: int) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN_FLAGS, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def map_file(path: Path, size: int, *, writable: bool = True) -> Mapping:
    """Map the whole of ``path``.

    Raises StoreCorrupt when it has not exactly ``size`` bytes, StoreUnusable when it is no plain file.
    """
    descriptor = _open(path, os.O_RDWR if writable else os.O_RDONLY)
    try:
        check_size(path, descriptor, size)
        return Mapping(descriptor, size, writable=writable)
    finally:
        os.close(descriptor)


def map_copy(path: Path, size: int) -> Mapping:
    """Map a copy of the first ``size`` bytes of ``path``, with zeros for what is missing. Raises StoreUnusable."""
    descriptor = _open(path, os.O_RDONLY)
    copy = os.memfd_create(path.name, os.MFD_CLOEXEC)
    try:
        at = 0
        while at < size and (part := os.pread(descriptor, min(1 << 20, size - at), at)):
            at += os.pwrite(copy, part, at)
        os.truncate(copy, size)
        return Mapping(copy, size)
    finally:
        os.close(copy)
        os.close(descriptor)


def _open(path: Path, access: int) -> int:
    # Not blocking, because somebody may have put a pipe there.
    try:
        descriptor = os.open(path, access | os.O_NONBLOCK | _OPEN_FLAGS)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise StoreUnusable(f"{path} is a symbolic link: a store holds plain files only") from error
        if error.errno in {errno.EISDIR, errno.ENXIO}:
            raise StoreUnusable(f"{path}: {error.strerror}: a store holds plain files only") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreUnusable(f"{path} is no plain file, and a store holds nothing else")
    return descriptor


def check_size(path: Path, descriptor: int, size: int) -> None:
    """Raise StoreCorrupt when the open file has another size."""
    status = os.fstat(descriptor)
    if status.st_size != size:
        raise StoreCorrupt(path, status.st_size, f"the file has {status.st_size} bytes instead of {size}")


def sync_file(path: Path) -> None:
    """Make the file's pages durable, mapped stores included. ``mmap.flush`` would hold the GIL meanwhile."""
    descriptor = os.open(path, os.O_RDONLY | _OPEN_FLAGS)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_scratch(root: Path) -> None:
    """Remove what processes killed during :func:`allocate` left behind. Only while nobody else has the store open."""
    for path in root.glob(SCRATCH_PREFIX + "*"):
        path.unlink(missing_ok=True)


def zero_view(view: memoryview, step: int = 1 << 20) -> int:
    """Zero a view in steps, leaving untouched what is zero: touching makes pages dirty. Returns bytes changed."""
    changed = 0
    for at in range(0, len(view), step):
        part = view[at : at + step]
        if any_set(part):
            part[:] = bytes(len(part))
            changed += len(part)
    return changed


def any_set(view: memoryview) -> bool:
    """Tell whether any byte is not zero."""
    return bytes(view).count(0) != len(view)
