"""File system: what a store directory lies on, and what may lie in it.

A store is memory that processes of one host share through files. The file system must give them one page cache and
locks that hold between processes. Network file systems do not: NFS, SMB, 9p, AFS and anything served through FUSE.

The directory may hold only the store's own regular files and directories, without links, all of one owner, or of the
group that it is shared with. Otherwise a user who may write there could make the store write elsewhere.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqclient.store.errors import StoreUnusable
from rmqclient.store.files.sharing import is_shared
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_OF_OTHER_HOSTS = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4",
     "ocfs2", "orangefs", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs")
)  # fmt: skip
_FUSE = re.compile(r"fuse(blk)?(\..*)?")
_SAY_WHEN_MOUNTED = ("ext4", "xfs", "f2fs")
_OF_THE_FILE_SYSTEM = "lost+found"  # in the top directory of an ext4 file system, for root alone
_LOST_WITH = {
    "tmpfs": "memory: a reboot or a power cut loses every message",
    "ramfs": "memory: a reboot or a power cut loses every message",
    "overlay": "the layer of a container: its messages are lost with the container, unless a volume is mounted there",
}


class Mount(NamedTuple):
    """A mounted file system: its mount point and its kind."""

    point: str
    kind: str
    """As ``mount`` says it: ``ext4``, ``nfs4``, ``fuse.sshfs``."""
    is_read_only: bool = False
    """Whether nobody can write to it. A mount can be read-only alone, as in a container that only looks."""

    @property
    def is_shared_memory(self) -> bool:
        """Whether processes of this host see each other's writes to mapped files, as far as its kind tells."""
        return self.kind not in _OF_OTHER_HOSTS and not _FUSE.fullmatch(self.kind)


def check_file_system(root: Path, *, allow_network: bool) -> None:
    """Raise StoreUnusable if ``root`` lies on a network file system, unless ``allow_network``."""
    mount = mount_of(root)
    if mount is None or mount.is_shared_memory:
        return
    text = (
        f"{root} lies on {mount.point}, a file system of kind {mount.kind}, which may not share mapped files and locks"
    )
    if not allow_network:
        raise StoreUnusable(
            f"{text}: use a disk of this host, or StoreConfig(allow_network_file_system=True) if you know that it does"
        )
    _log.warning("%s; it is used because allow_network_file_system is set", text)


def warn_of_loss(root: Path) -> None:
    """Warn if the messages in ``root`` will not survive what users expect them to survive."""
    mount = mount_of(root)
    if mount is not None and mount.kind in _LOST_WITH:
        _log.warning("%s lies on %s (%s), which is %s", root, mount.point, mount.kind, _LOST_WITH[mount.kind])


def mount_of(directory: Path) -> Mount | None:
    """Return the file system of a directory; None if the kernel does not say."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            about = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii")
        finally:
            os.close(descriptor)
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None
    number = re.search(r"^mnt_id:\s*(\d+)$", about, re.MULTILINE)
    return find_mount(mounts, int(number[1])) if number else None


def mounting_of(device: int) -> int:
    """Return a number that the mounted file system with this ``st_dev`` has until it is unmounted, or 0 for unknown.

    It is the same in every container, and no other one gets it before the next boot: it is the inode of the directory
    that the file system makes in ``/sys`` when it is mounted. Others than ext4, xfs and f2fs make none by their device.
    """
    name = os.path.realpath(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").rpartition("/")[2]
    for kind in _SAY_WHEN_MOUNTED:
        try:
            return Path(f"/sys/fs/{kind}/{name}").stat().st_ino
        except OSError:  # another kind, or there is no /sys here
            continue
    return 0


def find_mount(mountinfo: str, number: int) -> Mount | None:
    """Return the mount with this id from the text of ``/proc/<pid>/mountinfo`` (proc_pid_mountinfo(5))."""
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if fields[0] == str(number) and "-" in fields[6:]:
            kind, _, options = fields[fields.index("-", 6) + 1 :][:3]
            return Mount(_unescaped(fields[4]), _unescaped(kind), "ro" in options.split(","))
    return None


def check_plain(path: Path | str, status: os.stat_result) -> None:
    """Raise StoreUnusable if an open file is not regular, has a second name, or belongs to another user."""
    if stat.S_ISLNK(status.st_mode):
        raise StoreUnusable(f"{path} is a symbolic link: a store holds plain files only")
    if not stat.S_ISREG(status.st_mode):
        raise StoreUnusable(f"{path}: not a regular file: a store holds plain files only")
    if status.st_nlink > 1:
        raise StoreUnusable(f"{path}: the file has {status.st_nlink} names (hard links): remove the others")
    check_owner(path, status)


def check_owner(path: Path | str, status: os.stat_result) -> None:
    """Raise StoreUnusable unless a file belongs to this process's user, to the owner of its directory, or to its group.

    The group counts for a directory that is shared with it.
    """
    if status.st_uid == os.geteuid():
        return
    directory = Path(path).parent.stat()
    if status.st_uid == directory.st_uid or (is_shared(directory) and status.st_gid == directory.st_gid):
        return
    whose = f"{path}: belongs to user {status.st_uid}, its directory to user {directory.st_uid}"
    if status.st_uid == 0:
        raise StoreUnusable(f"{whose}: root made it? `chown --recursive` gives the store back to its owner")
    raise StoreUnusable(f"{whose}: a planted file?")


def check_content(root: Path, scratch_prefix: str) -> None:
    """Raise StoreUnusable if a store directory holds anything but directories and plain files of its owner.

    A file that is being made has a second name in ``root``, which begins with ``scratch_prefix``, until its maker or
    the next recovery removes that name.
    """
    entries = list(_entries(root))
    being_made = {entry.inode() for entry in entries if entry.name.startswith(scratch_prefix)}
    for entry in entries:
        if entry.name == _OF_THE_FILE_SYSTEM:
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:  # a Spark task moves or removes its staged files at any time
            continue
        if stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_ino in being_made):
            check_owner(entry.path, status)
        else:
            check_plain(entry.path, status)


def _entries(directory: Path | str) -> Iterator[os.DirEntry[str]]:
    try:
        entries = os.scandir(directory)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            yield entry
            if entry.is_dir(follow_symlinks=False) and entry.name != _OF_THE_FILE_SYSTEM:
                yield from _entries(entry.path)


def _unescaped(text: str) -> str:
    """Undo the octal escapes of blanks, tabs, newlines and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
