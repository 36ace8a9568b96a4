"""What servers that refuse to run as root need: a directory that belongs to their own user."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def has_user(user: str) -> bool:
    """Whether servers can run as this user if this is root; anybody else runs them as itself."""
    if os.getuid() != 0:
        return True
    with suppress(KeyError):
        return bool(pwd.getpwnam(user))
    return False


@contextmanager
def directory_of(user: str) -> Iterator[tuple[Path, str | None]]:
    """Yield a directory that goes at the end, and as whom to run in it: as ``user`` if this is root, else as we are."""
    with tempfile.TemporaryDirectory(prefix=f"rmq-{user}-") as directory:
        other = user if os.getuid() == 0 else None
        if other:
            shutil.chown(directory, other)
        yield Path(directory), other
