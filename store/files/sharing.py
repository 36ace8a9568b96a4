"""Sharing: which users may open a store. Its directory says it, and neither the umask nor root has a part in it.

=====================================================  =========  ===========  =============================
mode of the directory                                  its files  directories  open to
=====================================================  =========  ===========  =============================
any other, usually ``0700``                            ``0600``   ``0700``     its owner, and root
set-group-id, all three for the group, no write for    ``0660``   ``2770``     every member of its group
others: ``2770`` or ``2775``
=====================================================  =========  ===========  =============================

Below a directory with set-group-id the kernel gives each new file the group of the directory. What root makes it gives
away at once, to the owner and the group of the directory: a file of root would lock both out, even while they work.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

OWN_FILE: Final = 0o600
OWN_DIRECTORY: Final = 0o700
_SHARED_FILE: Final = 0o660
_SHARED_DIRECTORY: Final = 0o2770


def is_shared(directory: os.stat_result) -> bool:
    """Tell whether a directory is shared with its group."""
    mode = directory.st_mode
    return bool(mode & stat.S_ISGID) and mode & stat.S_IRWXG == stat.S_IRWXG and not mode & stat.S_IWOTH


def share_file(descriptor: int, directory: Path) -> None:
    """Let those use a file that was just made who may use its directory: its group, if it is shared, and its owner."""
    above = directory.stat()
    if _is_given_away(above):
        os.fchown(descriptor, above.st_uid, above.st_gid)
    if is_shared(above):
        os.fchmod(descriptor, _SHARED_FILE)


def share_directory(path: Path) -> None:
    """The same of a directory that was just made."""
    above = path.parent.stat()
    if _is_given_away(above):
        os.chown(path, above.st_uid, above.st_gid, follow_symlinks=False)
    if is_shared(above):
        path.chmod(_SHARED_DIRECTORY)


def open_for_owner(path: str, flags: int) -> int:
    """Open a file that ``flags`` make, and share it; the ``opener`` of :func:`open`. Never through a symbolic link."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, OWN_FILE)
    share_file(descriptor, Path(path).parent)
    return descriptor


def _is_given_away(directory: os.stat_result) -> bool:
    """Tell whether what this process makes in a directory must be given to its owner: only root can, and has to."""
    return os.geteuid() == 0 and directory.st_uid != 0
