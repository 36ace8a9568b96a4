"""Machine: the facts about a machine that make results comparable."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
_PROCESSES = Path(os.sep, "proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a benchmark ran."""

    cpu: str
    cores: int
    """CPUs that this process may use."""

    memory_gib: float
    kernel: str
    python: str
    file_system: str
    """File system of the working directory."""

    def __str__(self) -> str:
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return (
            f"{cores} of {self.cpu}, {self.memory_gib:.0f} GiB, Linux {self.kernel}, Python {self.python}, "
            f"{self.file_system}"
        )


def this_machine(directory: Path) -> Machine:
    """Describe the machine, and the file system that ``directory`` is on."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(memory / 2**30, 1),
        kernel=platform.release(),
        python=platform.python_version(),
        file_system=file_system(directory),
    )


def file_system(directory: Path) -> str:
    """Return the type of the file system that holds ``directory``: ``ext4``, ``tmpfs``."""
    mounts = [line.split() for line in (_PROCESSES / "self" / "mounts").read_text().splitlines()]
    types = {Path(mount[1]): mount[2] for mount in mounts}  # a later mount hides an earlier one
    resolved = directory.resolve()
    return next((types[path] for path in (resolved, *resolved.parents) if path in types), "unknown")


def commit() -> str:
    """Return the commit of the working tree, with ``+`` if tracked files differ from it."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + "+" * bool(_git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def process_fields(pid: int) -> dict[str, str]:
    """Return the lines of a process's ``status``: ``{"VmRSS": "12345 kB", "PPid": "1", ...}``."""
    lines = (_PROCESSES / str(pid) / "status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _cpu_model() -> str:
    for line in (_PROCESSES / "cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout.strip()
