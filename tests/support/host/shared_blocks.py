"""What lets the files of a store share their blocks with others, by file system: clones and snapshots."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Case(NamedTuple):
    """A file system, and what shares the blocks of the store on it with a backup beside it."""

    kind: str
    share: Callable[[Path], None]

    @property
    def name(self) -> str:
        """Both in words."""
        return f"{self.kind}-{self.share.__name__}"


def clone(disk: Path) -> None:
    """Copy the store by sharing its blocks, as ``cp`` does without being asked."""
    subprocess.run(["cp", "-a", "--reflink=auto", disk / "store", disk / "backup"], check=True, capture_output=True)


def snapshot(disk: Path) -> None:
    """Take a snapshot of the whole disk."""
    subprocess.run(["btrfs", "subvolume", "snapshot", "-r", disk, disk / "backup"], check=True, capture_output=True)


def nothing(disk: Path) -> None:
    """Share nothing: btrfs writes elsewhere all the same."""
    del disk


def remove_backup(disk: Path) -> None:
    """Remove what one of these has made."""
    backup = disk / "backup"
    shown = subprocess.run(["btrfs", "subvolume", "show", backup], check=False, capture_output=True)
    if shown.returncode == 0:
        subprocess.run(["btrfs", "subvolume", "delete", backup], check=True, capture_output=True)
    elif backup.exists():
        shutil.rmtree(backup)


CASES = [Case("xfs", clone), Case("btrfs", nothing), Case("btrfs", clone), Case("btrfs", snapshot)]
