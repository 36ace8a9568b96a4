"""Directory: where a kit's store lies, in memory if there is room, and the removal of those that dead kits left.

A kit holds a ``flock`` of the file ``owner`` in its directory for as long as it lives. The kernel ends that lock with
the last process that has it, so a lock that can be had is proof that nobody uses the directory: also across containers
that share ``/dev/shm`` and know different process ids. A directory without the file is left alone.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "rmq-kit-"
MEMORY = Path("/dev/shm")  # noqa: S108 - the directory in it is made for this user alone

_OWNER = "owner"
_ROOM_BYTES = 256 << 20


@contextmanager
def kit_directory() -> Iterator[Path]:
    """Make a directory, and remove it at the end; first remove what killed processes of this user left beside it."""
    place = MEMORY if _has_room(MEMORY) else Path(tempfile.gettempdir())
    _remove_left(place)
    owner, root = _made(place)
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
        os.close(owner)


def _made(place: Path) -> tuple[int, Path]:
    """Return the descriptor that holds a new directory, and the directory."""
    while True:
        root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        owner = os.open(root / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _is_had(owner) and os.fstat(owner).st_nlink:
            return owner, root
        os.close(owner)  # another kit took it for one that was left, between the two lines above, and removes it


def _remove_left(place: Path) -> None:
    for left in place.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another user's, or gone by now
            owner = os.open(left / _OWNER, os.O_RDWR | os.O_CLOEXEC)
            try:
                if _is_had(owner):
                    shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(owner)


def _is_had(owner: int) -> bool:
    """Take the lock; False when somebody has it."""
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _has_room(place: Path) -> bool:
    try:
        return os.access(place, os.W_OK) and shutil.disk_usage(place).free >= _ROOM_BYTES
    except OSError:
        return False
