"""One preallocated file: it appears under its name in full length and is mapped as a whole.

- Blocks are reserved by ``fallocate`` before the first store: a store into a hole on a full disk is SIGBUS, an
  allocation on a full disk is ENOSPC, which becomes :class:`StoreFull`. A file that grows has all of its size at once,
  and blocks for a part of it, as a broker's has; whoever stores behind that part reserves more before.
- Reserved blocks are of use only if the file is written in place, so btrfs is asked for that
  (:mod:`rmqclient.store.files.own_blocks`).
- A file is made under a scratch name in the store's root and linked into its directory when it is whole. A process
  that is killed half-way leaves a scratch file, which recovery removes. It never leaves a short file among the data,
  which RocketMQ would refuse to load. If two processes make the same file at once, both find it made.
- A file is never truncated while others may map it. Removing it is safe: its mappings stay until they are detached.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import struct
from fcntl import ioctl
from pathlib import Path
from typing import TypeAlias

from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import DiskFailed, StoreCorrupt, StoreUnusable, as_store_error, store_errors
from rmqclient.store.files.descriptors import above_streams
from rmqclient.store.files.file_system import check_owner
from rmqclient.store.files.sharing import OWN_DIRECTORY, OWN_FILE, share_directory, share_file
from rmqclient.store.kernel._kernel import Mapping, reserve_blocks

SCRATCH_PREFIX = ".allocating-"

# Not blocking, because the file may be a pipe.
_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

# FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of linux/fs.h where a long has 64 bits, and FS_NOCOW_FL
_GET_FLAGS, _SET_FLAGS, _IN_PLACE = 0x8008_6601, 0x4008_6602, 0x0080_0000


def allocate(path: Path, size: int, scratch: Path, *, reserved: int | None = None) -> bool:
    """Make ``path`` with ``size`` zero bytes, made first inside ``scratch``, a directory of the same file system.

    Blocks are reserved for the first ``reserved`` bytes, or for all; :func:`reserve` reserves more.

    Returns False if it exists. Raises StoreFull without room, or another error of
    :func:`rmqclient.store.errors.as_store_error`; then nothing is left behind.
    """
    with store_errors(f"{path} of {size} bytes cannot be made"):
        if path.exists():
            return False
        temporary = scratch_name(scratch)
        try:
            make_directory(path.parent)
            _allocate_at(temporary, size, size if reserved is None else reserved)
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(OSError):  # the next recovery removes it
                temporary.unlink(missing_ok=True)
    reach(CrashPoint.FILE_ALLOCATED)
    return True


def scratch_name(directory: Path) -> Path:
    """Return an unused name in the root of a store, for a file that is being made."""
    return directory / f"{SCRATCH_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"


def make_directory(path: Path) -> None:
    """Make a directory and the missing ones above it, each as :mod:`rmqclient.store.files.sharing` says."""
    try:
        path.mkdir(mode=OWN_DIRECTORY)
    except FileExistsError:
        if not path.is_dir():
            raise
    except FileNotFoundError:
        make_directory(path.parent)
        make_directory(path)
    else:
        share_directory(path)


def _allocate_at(path: Path, size: int, reserved: int) -> None:
    descriptor = above_streams(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN_FLAGS, OWN_FILE))
    try:
        share_file(descriptor, path.parent)
        _write_in_place(descriptor)
        if reserved < size and reserve_blocks(descriptor, reserved):
            os.ftruncate(descriptor, size)
        else:
            os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def _write_in_place(descriptor: int) -> None:
    """Ask for an empty file to be written in place. File systems that do so anyway do not know the flag."""
    with contextlib.suppress(OSError):
        flags = struct.unpack("i", ioctl(descriptor, _GET_FLAGS, bytes(4)))[0]
        ioctl(descriptor, _SET_FLAGS, struct.pack("i", flags | _IN_PLACE))


def reserve(path: Path, size: int) -> None:
    """Reserve blocks for the first ``size`` bytes of a file of the store. Raises StoreFull, and as :func:`open_plain`.

    A file system that cannot do this has reserved all of them when the file was made.
    """
    descriptor = open_plain(path, os.O_RDWR)
    try:
        with store_errors(f"{path} cannot have blocks for {size} bytes"):
            reserve_blocks(descriptor, size)
    finally:
        os.close(descriptor)


FileIdentity: TypeAlias = tuple[int, int]
"""Device and inode. No other file gets them while this one is open or mapped."""


def identity_of(path: str) -> FileIdentity:
    """Return the identity of the file at a path. Raises FileNotFoundError, LimitReached, DiskFailed, StoreUnusable."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise as_store_error(error, f"{path} cannot be looked at") from error
    return status.st_dev, status.st_ino


def is_at(path: str, identity: FileIdentity) -> bool:
    """Return whether a file is still the file at its path."""
    try:
        return identity_of(path) == identity
    except FileNotFoundError:
        return False


def map_file(path: Path, size: int, *, writable: bool = True) -> Mapping:
    """Map the whole of ``path``. Raises as :func:`open_file`."""
    descriptor = open_file(path, size, os.O_RDWR if writable else os.O_RDONLY)
    try:
        with store_errors(f"{path} of {size} bytes cannot be mapped"):
            return Mapping(descriptor, size, writable=writable, path=os.fsencode(path))
    finally:
        os.close(descriptor)


def open_file(path: Path, size: int, mode: int) -> int:
    """Open ``path`` and return its descriptor.

    Raises StoreCorrupt if it does not have exactly ``size`` bytes; otherwise as :func:`open_plain`.
    """
    descriptor = open_plain(path, mode)
    try:
        check_size(path, descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_plain(path: Path, flags: int) -> int:
    """Open a file of any size.

    Raises FileNotFoundError, LimitReached, DiskFailed, and StoreUnusable if the file is not permitted, is not plain, or
    belongs to another user.
    """
    descriptor = _open(path, flags)
    try:
        status = _status_of(path, descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StoreUnusable(f"{path} is not a plain file: a store holds plain files only")
        check_owner(path, status)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _open(path: Path, flags: int) -> int:
    try:
        return above_streams(os.open(path, flags | _OPEN_FLAGS))
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise StoreUnusable(f"{path} is a symbolic link: a store holds plain files only") from error
        if error.errno in {errno.EISDIR, errno.ENXIO}:
            raise StoreUnusable(f"{path}: {error.strerror}: a store holds plain files only") from error
        raise as_store_error(error, f"{path} cannot be opened") from error


def check_size(path: Path, descriptor: int, size: int) -> None:
    """Raise StoreCorrupt if the open file has another size."""
    found = _status_of(path, descriptor).st_size
    if found != size:
        raise StoreCorrupt(path, found, f"the file has {found} bytes instead of {size}")


def _status_of(path: Path, descriptor: int) -> os.stat_result:
    try:
        return os.fstat(descriptor)
    except OSError as error:
        raise as_store_error(error, f"{path} cannot be looked at") from error


def sync_file(path: Path) -> None:
    """Make the file's pages durable, mapped stores included. ``mmap.flush`` would hold the GIL meanwhile.

    Raises OSError only if the file is missing or the disk failed; no later flush can be believed then. Raises a typed
    error if the flush could not begin for another reason.
    """
    descriptor = open_to_sync(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def open_to_sync(path: Path, flags: int) -> int:
    """Open a file or directory whose flush follows. Raises as :func:`sync_file`."""
    try:
        return _open(path, flags)
    except DiskFailed as error:
        raise OSError(errno.EIO, str(error)) from error


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises as :func:`sync_file`."""
    descriptor = open_to_sync(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def forget_pages(root: Path) -> None:
    """Let the next reads of all files below a directory come from the disk.

    After a flush that failed, the kernel goes on to show the pages that it could not write, as if it had written them,
    until it needs their memory. What it has not tried to write yet is written first.
    """
    for path in (path for path in root.rglob("*") if path.is_file()):
        descriptor = open_plain(path, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):  # the disk may still refuse it: then this is lost, too
                os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def remove_scratch(root: Path) -> None:
    """Remove the files that killed :func:`allocate` calls left. Only while no other process has it open."""
    for path in root.glob(SCRATCH_PREFIX + "*"):
        path.unlink(missing_ok=True)
