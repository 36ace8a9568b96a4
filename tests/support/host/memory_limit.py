"""A limit for the memory of some processes together, page cache included, as a container has one: a control group.

Version 2 of the kernel's control groups and version 1 are both known. Making a group needs root, and a place where the
memory controller may be used.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PROC = Path(os.sep, "proc", "self")
_ENDS_S = 60.0


class CannotLimit(Exception):
    """There is no memory controller here, or no right to use it."""


@dataclass(frozen=True, slots=True)
class _Version:
    """The files of one version of control groups."""

    file_system: str
    limit: str
    most: str
    events: str


_VERSIONS = (
    _Version("cgroup2", "memory.max", "memory.peak", "memory.events"),
    _Version("cgroup", "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"),
)


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A control group with a limit."""

    directory: Path
    version: _Version

    def within(self, *command: str) -> Sequence[str]:
        """Return the command that joins the group and then becomes ``command``."""
        join = 'echo $$ > "$0" && exec "$@"'
        return ("sh", "-c", join, str(self.directory / "cgroup.procs"), *command)

    @property
    def kills(self) -> int:
        """How many processes the kernel has killed because they needed more than the limit."""
        (found,) = re.findall(r"^oom_kill (\d+)$", self._read(self.version.events), re.MULTILINE)
        return int(found)

    @property
    def most_bytes(self) -> int:
        """Most bytes that the processes had at once."""
        return int(self._read(self.version.most))

    def is_empty(self) -> bool:
        """Tell whether no process is in the group."""
        return not self._read("cgroup.procs")

    def _read(self, name: str) -> str:
        return (self.directory / name).read_text(encoding="ascii")


@contextmanager
def memory_limit(limit_bytes: int) -> Iterator[MemoryLimit]:
    """Make a control group; its processes must end before the block does. There is no swap. Raises CannotLimit."""
    limit = _made(limit_bytes)
    try:
        yield limit
    finally:
        until = time.monotonic() + _ENDS_S
        while not limit.is_empty() and time.monotonic() < until:
            threading.Event().wait(0.02)
        limit.directory.rmdir()


def _made(limit_bytes: int) -> MemoryLimit:
    """Make the group in the first place that allows it."""
    reasons = []
    for version in _VERSIONS:
        for place in _places(version):
            try:
                directory = Path(tempfile.mkdtemp(prefix="rmq-", dir=place))
            except OSError as error:
                reasons.append(f"{place}: {error.strerror}")
                continue
            try:
                (directory / version.limit).write_text(str(limit_bytes), encoding="ascii")
                _forbid_swap(directory, limit_bytes)
                limit = MemoryLimit(directory, version)
                _ = limit.kills, limit.most_bytes  # an older kernel tells less
                return limit
            except (OSError, ValueError) as error:
                directory.rmdir()
                reasons.append(f"{place}: {error}")
    raise CannotLimit(f"memory cannot be limited: {'; '.join(reasons) or 'no memory controller is mounted'}")


def _forbid_swap(directory: Path, limit_bytes: int) -> None:
    for name, most in (("memory.swap.max", 0), ("memory.memsw.limit_in_bytes", limit_bytes)):
        path = directory / name
        if path.exists():
            path.write_text(str(most), encoding="ascii")


def _places(version: _Version) -> Iterator[Path]:
    """Yield the group of this process and those above it, which may have groups with a limit below them."""
    for line in (_PROC / "mounts").read_text(encoding="utf-8").splitlines():
        _, point, kind, options, *_ = line.split()
        if kind == version.file_system and (kind == "cgroup2" or "memory" in options.split(",")):
            own = Path(point, _own_group(version).lstrip("/"))
            for place in (own, *own.parents):
                if place.is_relative_to(point) and place.is_dir() and _passes_memory_on(place, version):
                    yield place


def _own_group(version: _Version) -> str:
    for line in (_PROC / "cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if (not controllers) if version.file_system == "cgroup2" else ("memory" in controllers.split(",")):
            return path
    return "/"


def _passes_memory_on(place: Path, version: _Version) -> bool:
    """Tell whether groups below have the memory controller; in version 1 all have."""
    passed_on = place / "cgroup.subtree_control"
    return version.file_system == "cgroup" or (
        passed_on.exists() and "memory" in passed_on.read_text(encoding="ascii").split()
    )
