"""Result: what a run leaves behind: the machine, the peers with their versions and promises, and every figure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.machine import REPOSITORY, Machine
from benchmarks.measure import Figure, Size

RESULT = REPOSITORY / "benchmarks" / "results" / "peers.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One peer."""

    name: str
    title: str
    ours: bool
    framework: bool
    level: str
    """What an answered send survives, as :class:`benchmarks.peers.peer.Level` says it."""
    flush: str
    ways: str
    versions: dict[str, str]
    not_measured: str
    """Why nothing of it was measured; empty if something was."""
    failures: dict[str, str]
    """Work that failed, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run of all peers that were chosen."""

    date: str
    """Time of the end, UTC."""
    commit: str
    machine: Machine
    size: Size
    turns: int
    took_s: float
    load_before: float
    """Processes that ran or wanted to, over the minute before the run."""
    rows: list[Row]
    figures: list[Figure]
    """``name`` is the name of a row, ``case`` what was measured."""
    wakes_late_ms: dict[str, float] = field(default_factory=dict)
    """By percentile, how late a process was woken that did nothing but sleep, before the peers of each turn."""


def write(result: Result, path: Path) -> None:
    """Write JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


def read(path: Path) -> Result:
    """Read what :func:`write` wrote. Raises msgspec.ValidationError for anything else."""
    return msgspec.json.decode(path.read_bytes(), type=Result)
