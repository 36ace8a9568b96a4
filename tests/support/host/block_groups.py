"""Block groups of ext4: how many removed files stand in the way of a new one.

ext4 without a journal does not use an inode again for a minute or more after its file was removed. To make a file, it
looks at the inodes of a block group one by one until it finds one that was not removed lately (``find_inode_bit`` and
``recently_deleted`` in fs/ext4/ialloc.c). The folders of all tests usually share a block group, and each test removes
its stores: after some seconds this search takes longer than everything else that the making of a store costs.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

_GET_FLAGS, _SET_FLAGS = 0x8008_6601, 0x4008_6602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of linux/fs.h where a long has 64 bits."""

_TOP_OF_HIERARCHIES = 0x0002_0000
"""FS_TOPDIR_FL, the T of chattr(1): subfolders are not related, and belong far from each other."""


def spread_folders(folder: Path) -> None:
    """Ask ext4 to make each folder inside of this one in another block group. Other file systems refuse: no matter."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            flags = struct.unpack("i", ioctl(descriptor, _GET_FLAGS, bytes(4)))[0]
            ioctl(descriptor, _SET_FLAGS, struct.pack("i", flags | _TOP_OF_HIERARCHIES))
    finally:
        os.close(descriptor)
