"""What servers that refuse to run as root need: a directory that belongs to their own user."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def directory_of(user: str) -> Iterator[tuple[Path, str | None]]:
    """Yield a directory that goes at the end, and as whom to run in it: as ``user`` if this is root, else as we are."""
    with tempfile.TemporaryDirectory(prefix=f"rmq-{user}-") as directory:
        other = user if os.getuid() == 0 else None
        if other:
            shutil.chown(directory, other)
        yield Path(directory), other
