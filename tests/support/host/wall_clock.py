"""A wall clock for child processes that a test sets as it likes, while that of the host stays what it is."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")
_MS = struct.Struct("=q")


class WallClock:
    """The clock of every process that is started with :attr:`environment`, and of their children."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "wall-clock"
        self.set(0)
        library = directory / "wall-clock.so"
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run([*compiler, "-shared", "-fPIC", "-O1", "-o", library, _SOURCE, "-ldl"], check=True)
        self.environment = {**os.environ, "LD_PRELOAD": str(library), "WALL_CLOCK": str(self.path)}

    def set(self, ahead_ms: int) -> None:
        """Set the clock so far ahead of the host's, behind it for a negative number; seen at once."""
        set_wall_clock(self.path, ahead_ms)


def set_wall_clock(path: Path, ahead_ms: int) -> None:
    """Set the clock whose offset stands in this file."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.write(_MS.pack(ahead_ms))


def path_of_this_process() -> Path | None:
    """Return the file that sets the clock of this process, None when that is the host's."""
    path = os.environ.get("WALL_CLOCK")
    return Path(path) if path else None


def why_not() -> str:
    """Return why there can be no such clock; empty when there can."""
    return "" if shutil.which(os.environ.get("CC", "cc").split()[0]) else "there is no C compiler"
