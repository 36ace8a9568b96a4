"""A machine whose power can be cut: a real file system on a loop device, and a boot id that changes with each start.

``FS_IOC_SHUTDOWN`` makes a file system forget, in one step, what has not reached its disk; unmounting and mounting it
again is what a reboot does to it. The kernel goes on all the while, so a file is bound over
``/proc/sys/kernel/random/boot_id``, in which each start writes another id.

The process must live in mount and process namespaces of its own (:func:`command`): mounts, loop device, image and
children then end with it, whoever kills it.
"""

from __future__ import annotations

import ctypes
import enum
import errno
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

from rmqclient.store import boottime

PAGE = 4096

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FS_IOC_SHUTDOWN = 0x8004587D
_FITRIM = 0xC0185879
_LOOP_CTL_GET_FREE = 0x4C82
_LOOP_CONFIGURE = 0x4C0A
_LOOP_CONFIG = struct.Struct("=II 8x8x8x8x8x4x4x4xI 64x64x32x16x 64x")
"""``struct loop_config`` of ``linux/loop.h``: descriptor, block size, and of its ``loop_info64`` the flags."""
_AUTOCLEAR = 4
_MS_BIND = 4096
_WRITE_AND_WAIT = 1 | 2 | 4

_libc = ctypes.CDLL(None, use_errno=True)

MAKING = {
    "ext4": (96 << 20, ["mkfs.ext4", "-q", "-F", "-J", "size=8", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
    "xfs": (320 << 20, ["mkfs.xfs", "-q", "-f"]),
}
"""Size of the image and command, by file system. mkfs.xfs makes none below 300 MB."""


class Cut(enum.IntEnum):
    """What of the file system reaches the disk at a power cut; the numbers are the kernel's."""

    ALL = 0  #: everything, as after a freeze
    JOURNAL = 1  #: names and sizes, and of the pages only those that were written already
    NOTHING = 2  #: nothing that was not there


def why_not(file_system: str = "ext4") -> str:
    """Say why there can be no such machine here; empty when there can."""
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    maker = MAKING[file_system][1][0]
    missing = [
        name
        for name in (maker, "unshare", "setpriv")
        if shutil.which(name, path=os.defpath + ":/usr/sbin:/sbin") is None
    ]
    if missing:
        return f"{' and '.join(missing)} is not installed"
    if not Path("/dev/loop-control").exists():
        return "this kernel has no loop devices"
    tried = subprocess.run(command(["true"]), capture_output=True, text=True, check=False)
    return f"no namespaces: {tried.stderr.strip()}" if tried.returncode else ""


def command(arguments: list[str]) -> list[str]:
    """Return the command that runs ``arguments`` in namespaces that end with it, or with the process that runs it."""
    own = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["setpriv", "--pdeathsig", "KILL", *own, *arguments]


class Machine:
    """The machine, running. ``directory`` is where its file system is mounted. A scratch directory holds the image."""

    def __init__(self, file_system: str, scratch: Path) -> None:
        if os.getpid() != 1:
            raise RuntimeError("a machine needs namespaces of its own: start the process as command() says")
        self.file_system = file_system
        self.directory = scratch / file_system
        self.directory.mkdir()
        self._boot_id = scratch / "boot_id"
        self._new_boot()
        _mount(self._boot_id, _BOOT_ID, None, _MS_BIND)
        self._image = _made(file_system, scratch / f"{file_system}.image")
        self._mount()

    def cut(self, how: Cut) -> int:
        """Cut the power; return the last moment before that, in ns of :func:`rmqclient.store.boottime`."""
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            before = boottime()
            fcntl.ioctl(descriptor, _FS_IOC_SHUTDOWN, struct.pack("=I", how))
        finally:
            os.close(descriptor)
        return before

    def start(self) -> None:
        """Start again after a cut; every process that used the file system must be gone."""
        self._new_boot()
        self.plug_in()

    def plug_in(self) -> None:
        """Mount the disk again, as another device and without a boot."""
        _unmount(self.directory)
        self._mount()

    def make_thin(self) -> None:
        """Keep room in the image for what the file system has by now, and give back the room of its free blocks."""
        os.posix_fallocate(self._image, 0, MAKING[self.file_system][0])
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _FITRIM, struct.pack("=QQQ", 0, 2**64 - 1, 0))
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Give everything back. What is not given back goes with this process."""
        _unmount(self.directory)
        _unmount(_BOOT_ID)
        os.close(self._image)

    def _mount(self) -> None:
        # A new device each time: one that stays open keeps what a file system had in its buffers, through a cut.
        loop, device = _attached(self._image)
        try:
            _mount(device, self.directory, self.file_system)
        finally:
            os.close(loop)
        probe = self.directory / ".probe"
        deadline = time.monotonic() + 5
        while True:  # for some moments after its first mount, xfs can be too unsure of its free space to give any
            try:
                probe.write_bytes(b"room")
            except OSError as error:
                if error.errno != errno.ENOSPC or time.monotonic() > deadline:
                    raise
            else:
                probe.unlink()
                return

    def _new_boot(self) -> None:
        self._boot_id.write_text(f"{uuid.uuid4()}\n", encoding="ascii")


def write_pages(path: Path, pages: Iterable[int]) -> None:
    """Let the pages that begin at these bytes of a file reach the disk, as the kernel may any time.

    A page that is written for the first time counts only when its place in the file is in the journal, too, as it is
    after ``Cut.JOURNAL``.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for at in pages:
            _libc.sync_file_range(descriptor, ctypes.c_int64(at), ctypes.c_int64(PAGE), _WRITE_AND_WAIT)
    finally:
        os.close(descriptor)


def _made(file_system: str, image: Path) -> int:
    """Make the file system in an image that has no name any more; return its descriptor."""
    size, make = MAKING[file_system]
    with image.open("xb") as file:
        file.truncate(size)
    searched = {**os.environ, "PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"}
    subprocess.run([*make, str(image)], check=True, stdout=sys.stderr, env=searched)
    descriptor = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    image.unlink()
    return descriptor


def _attached(image: int) -> tuple[int, Path]:
    """Attach an open image to a free loop device, for as long as somebody has that open or mounted."""
    control = os.open("/dev/loop-control", os.O_RDWR)
    try:
        for _ in range(100):
            device = Path(f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}")
            loop = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(loop, _LOOP_CONFIGURE, _LOOP_CONFIG.pack(image, 0, _AUTOCLEAR))
            except OSError:
                os.close(loop)  # somebody else was faster
            else:
                return loop, device
    finally:
        os.close(control)
    raise OSError("no loop device is free")


def _mount(source: Path, target: Path, file_system: str | None, flags: int = 0) -> None:
    kind = file_system.encode() if file_system else None
    if _libc.mount(bytes(source), bytes(target), kind, flags, None):
        raise OSError(ctypes.get_errno(), f"mounting {source}: {os.strerror(ctypes.get_errno())}")


def _unmount(target: Path) -> None:
    if _libc.umount2(bytes(target), 0):
        raise OSError(ctypes.get_errno(), f"unmounting {target}: {os.strerror(ctypes.get_errno())}")
