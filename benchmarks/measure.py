"""Measure: figures and their targets.

Everything is measured several times, in turns with the thing that it is compared with, so that a disturbance of the
machine affects both. A figure keeps every value. A ratio is taken within each turn; the median is taken of the ratios.
"""

from __future__ import annotations

import enum
import mmap
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

from benchmarks.machine import REPOSITORY, file_system
from rmqclient import StoreConfig

P = TypeVar("P")

Unit = Literal["/s", "s", "ms", "µs", "ns", "MiB", "B", "x"]

WARMED = (
    "Right before each measurement a file as long as what it writes was written through a mapping and removed. On a "
    "virtual machine a page that the guest has never touched, or has given back, costs some 10 µs at its first touch "
    "instead of 1 µs, and that is not what is measured here."
)
_MOST_OF_MEMORY = 0.5
_CHUNK = bytes(1 << 20)


class Size(enum.Enum):
    """How long a benchmark runs."""

    FULL = "full"  #: for docs/results/benchmarks.md
    QUICK = "quick"  #: some seconds, to see whether a change deserves the full run
    SMALLEST = "smallest"  #: as little as possible, to show that the benchmark works


@dataclass(frozen=True, slots=True)
class Target:
    """The value that a figure should reach."""

    limit: float
    at_least: bool

    def is_met_by(self, value: float) -> bool:
        """Compare."""
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One thing measured; ``values`` has one number for each turn."""

    name: str
    case: str
    """Distinguishes figures of the same name: ``100 B``, ``8 processes``."""

    unit: Unit
    values: tuple[float, ...]
    median: float
    low: float
    high: float
    target: Target | None = None


class Samples:
    """Collects the values of one run."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._values: dict[tuple[str, str], list[float]] = {}
        self._units: dict[tuple[str, str], Unit] = {}
        self._targets: dict[tuple[str, str], Target] = {}

    def add(self, name: str, case: str, unit: Unit, value: float, target: Target | None = None) -> None:
        """Keep the value that one turn measured."""
        self._values.setdefault((name, case), []).append(value)
        self._units[name, case] = unit
        if target is not None:
            self._targets[name, case] = target

    def add_ratio(
        self, name: str, case: str, of: tuple[str, str], to: tuple[str, str], target: Target | None = None
    ) -> None:
        """Add the ratio of two figures, turn by turn. Raises KeyError, and ValueError for unequal numbers of turns."""
        for numerator, denominator in zip(self._values[of], self._values[to], strict=True):
            self.add(name, case, "x", numerator / denominator, target)

    def note(self, text: str) -> None:
        """Add a note that a reader has to know."""
        self.notes.append(text)

    @property
    def figures(self) -> list[Figure]:
        """All figures, in the order of their first values."""
        return [self._figure(key, values) for key, values in self._values.items()]

    def _figure(self, key: tuple[str, str], values: Sequence[float]) -> Figure:
        return Figure(
            name=key[0],
            case=key[1],
            unit=self._units[key],
            values=tuple(_rounded(value) for value in values),
            median=_rounded(statistics.median(values)),
            low=_rounded(min(values)),
            high=_rounded(max(values)),
            target=self._targets.get(key),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark(Generic[P]):
    """One benchmark; ``P`` is the dataclass of its parameters."""

    name: str
    title: str
    parameters: Mapping[Size, P]
    run: Callable[[P, Path, Samples], None]
    """Measures into the samples; works in the directory and leaves it empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The number of messages, and the bytes of each on disk, between two times of CLOCK_MONOTONIC."""

    messages: int
    record_bytes: int
    begun_ns: int
    ended_ns: int


def rate(*spans: Span) -> float:
    """Return messages per second from the first begin to the last end of spans that ran together."""
    took_ns = max(span.ended_ns for span in spans) - min(span.begun_ns for span in spans)
    return sum(span.messages for span in spans) / took_ns * 1e9


def cost_ns(span: Span) -> float:
    """Return nanoseconds per message."""
    return (span.ended_ns - span.begun_ns) / span.messages


def at_least(limit: float) -> Target:
    """The more, the better."""
    return Target(limit, at_least=True)


def at_most(limit: float) -> Target:
    """The less, the better."""
    return Target(limit, at_least=False)


def in_bytes(body_bytes: int) -> str:
    """Return the name of a body size: ``100 B``, ``4 KiB``."""
    return f"{body_bytes >> 10} KiB" if body_bytes >= 1024 else f"{body_bytes} B"


def amount(byte_count: int) -> str:
    """Return a number of bytes in words: ``512 MiB``, ``10 GiB``."""
    return f"{byte_count / 2**30:.0f} GiB" if byte_count >= 1 << 30 else f"{byte_count / 2**20:.0f} MiB"


def has_room(needed: int, what: str, directory: Path, samples: Samples) -> bool:
    """Tell whether so many bytes can be written; note what is not measured otherwise.

    A store removes its oldest files from a disk that is too full, so not all of a disk is room.
    """
    disk = shutil.disk_usage(directory)
    most_used = (disk.used + disk.free) * StoreConfig().retention.disk_clean_forcibly_percent // 100
    room = max(0, most_used - disk.used)
    if room < needed:
        samples.note(f"Not measured, {what}: the disk has room for {amount(room)}, less than {amount(needed)}.")
    return room >= needed


@contextmanager
def scratch(directory: Path, writes: int = 0) -> Iterator[Path]:
    """Make a directory for a measurement that writes about this many bytes, and remove it with its content."""
    path = Path(tempfile.mkdtemp(prefix="run-", dir=directory))
    try:
        touch_pages(path / "touched", writes)
        yield path
    finally:
        shutil.rmtree(path)


def touch_pages(path: Path, byte_count: int) -> None:
    """Write and remove a file, so that the next writer of files gets its pages; at most half of the memory.

    Anonymous memory would not help: its pages come from other places of the allocator than those of a file.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    chunks = -(-min(byte_count, int(memory * _MOST_OF_MEMORY)) // len(_CHUNK))
    if chunks:
        with path.open("w+b") as file:
            os.posix_fallocate(file.fileno(), 0, chunks * len(_CHUNK))
            with mmap.mmap(file.fileno(), 0) as mapping:
                for at in range(0, len(mapping), len(_CHUNK)):
                    mapping[at : at + len(_CHUNK)] = _CHUNK
        path.unlink()


def working_directory(directory: Path | None) -> tempfile.TemporaryDirectory[str]:
    """Make a directory that is removed at the end; by default on a disk, where stores belong."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        parent = directory
    else:
        parent = Path(tempfile.gettempdir())
        if file_system(parent) in {"tmpfs", "ramfs"}:
            parent = REPOSITORY
    return tempfile.TemporaryDirectory(prefix="rmq-benchmarks-", dir=parent)


def _rounded(value: float) -> float:
    """Round to six digits, more than any measurement can justify."""
    return float(f"{value:.6g}")
