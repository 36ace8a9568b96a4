"""What is only read or copied, and costs a moment: made once for a run of pytest, whatever its number of workers."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

Once = Callable[[str, Callable[[Path], Path]], Path]
"""Makes something in a new directory of its name, unless a worker of this run has; returns what was made there."""


def once_beneath(base: Path) -> Once:
    """Return a function that makes things in directories of ``base``, which all workers of the run know."""

    def make(name: str, build: Callable[[Path], Path]) -> Path:
        directory, made = base / name, base / f"{name}.made"
        with (base / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                shutil.rmtree(directory, ignore_errors=True)  # of one that failed: the next test is told why, too
                directory.mkdir()
                made.write_text(str(build(directory)), encoding="utf-8")
        return Path(made.read_text(encoding="utf-8"))

    return make
