"""Own blocks: a mapped file is written in place, into blocks that no other file has.

A store into a page whose block is shared with a clone or a snapshot needs a new block, and on a full disk it is SIGBUS.

- btrfs writes every file elsewhere than it was, unless the file was made with the flag ``C`` of chattr(1). Then it has
  neither checksums nor compression by the file system; records have a CRC of their own. ``cp`` copies such a file
  instead of cloning it. A snapshot shares its blocks all the same.
- xfs, and ``cp`` of coreutils 9 without being asked, make clones.

Populating the pages for a write gives the file blocks of its own, and says ENOSPC where a store would be a signal.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.errors import StoreFull, store_errors
from rmqclient.store.files.file_system import mount_of
from rmqclient.store.files.mapped_file import allocate, open_plain
from rmqclient.store.kernel._kernel import Mapping

RESERVE = "shared.reserve"
"""Name of the file that holds room for the runtime file; the handler of the kernel empties it (store/kernel/room.h)."""
_RESERVE_BYTES = layout.RUNTIME_SIZE + (1 << 20)
"""With what the file system itself needs for new blocks."""

_SHARING = frozenset(("xfs", "btrfs", "bcachefs", "overlay"))

# linux/fiemap.h
_FIEMAP = 0xC020_660B
_HEAD = struct.Struct("=QQIIII")
_EXTENT = struct.Struct("=QQQ16xI12x")
_EXTENTS_A_LOOK = 512
_LAST, _SHARED = 0x0001, 0x2000
_PAGE = os.sysconf("SC_PAGE_SIZE")


def can_share(directory: Path) -> bool:
    """Tell whether files in a directory can come to share blocks with others."""
    mount = mount_of(directory)
    return mount is not None and mount.kind in _SHARING


def shares_blocks(path: Path) -> bool:
    """Tell whether a file shares blocks with others, as far as is known. Raises as :func:`open_plain`."""
    descriptor = open_plain(path, os.O_RDONLY)
    try:
        return any(True for _ in _shared_parts(descriptor))
    finally:
        os.close(descriptor)


def give_own_blocks(path: Path, mapping: Mapping) -> None:
    """Give a mapped file blocks of its own where it shares them.

    Raises StoreFull without room, and as :func:`open_plain`.
    """
    descriptor = open_plain(path, os.O_RDONLY)
    try:
        with store_errors(f"{path} shares blocks with a clone or a snapshot, and cannot have its own"):
            for begin, end in _shared_parts(descriptor):
                _populate(mapping, begin, min(end, mapping.size))
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def keep_reserve(root: Path) -> None:
    """Hold room for all pages of the runtime file, so that they have it when a clone shares their blocks.

    The blocks are reserved and never written, so xfs does not share them. A reserve that was used, or that a snapshot
    shares, is made anew. Without room there is none.
    """
    path = root / RESERVE
    with contextlib.suppress(StoreFull):
        try:
            if path.stat().st_size == _RESERVE_BYTES and not shares_blocks(path):
                return
            path.unlink()
        except FileNotFoundError:
            pass
        allocate(path, _RESERVE_BYTES, root)


def give_up_reserve(root: Path) -> None:
    """Free the blocks of the reserve, for pages of the runtime file."""
    with contextlib.suppress(OSError):  # there is none
        os.truncate(root / RESERVE, 0)


def _populate(mapping: Mapping, begin: int, end: int) -> None:
    try:
        mapping.populate(begin - begin % _PAGE, end)
    except OSError as error:
        if error.errno == errno.EFAULT:  # a store there would be SIGBUS
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise


def _shared_parts(descriptor: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the parts of a file that share blocks; none where the file system does not say."""
    start = 0
    while True:
        answer = bytearray(_HEAD.pack(start, 2**64 - 1 - start, 0, 0, _EXTENTS_A_LOOK, 0))
        answer += bytes(_EXTENTS_A_LOOK * _EXTENT.size)
        try:
            ioctl(descriptor, _FIEMAP, answer)
        except OSError as error:
            if error.errno in {errno.EOPNOTSUPP, errno.ENOTTY}:
                return
            raise
        count, flags = _HEAD.unpack_from(answer)[3], _LAST
        for number in range(count):
            begin, _, size, flags = _EXTENT.unpack_from(answer, _HEAD.size + number * _EXTENT.size)
            start = begin + size
            if flags & _SHARED:
                yield begin, start
        if flags & _LAST or not count:
            return
