"""Sharing: which users may open a store. Its directory says it, and the umask has no part in it.

=====================================================  =========  ===========  =============================
mode of the directory                                  its files  directories  open to
=====================================================  =========  ===========  =============================
any other, usually ``0700``                            ``0600``   ``0700``     its owner, and root
set-group-id, all three for the group, no write for    ``0660``   ``2770``     every member of its group
others: ``2770`` or ``2775``
=====================================================  =========  ===========  =============================

Below a directory with set-group-id the kernel gives each new file the group of the directory.
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
    """Let the group use a file that was just made for its owner alone, if its directory is shared."""
    if is_shared(directory.stat()):
        os.fchmod(descriptor, _SHARED_FILE)


def share_directory(path: Path) -> None:
    """The same of a directory that was just made."""
    if is_shared(path.parent.stat()):
        path.chmod(_SHARED_DIRECTORY)
