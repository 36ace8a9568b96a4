"""The n-th flush fails, for every n: who is told, and what is acknowledged after that."""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path
from typing import Any

from rmqclient.store import Durability
from tests.power.disks import dead_disk, failing, machine
from tests.torture.result import Result, Rig
from tests.torture.wholes.power import MEMORY

CLAIM = "After a flush failed in any process, no send returns in any, and the store is not left as one that was closed."

MODES: list[tuple[str, dict[str, Any]]] = [
    ("SYNC, alone", {"durability": Durability.SYNC, "alone": True}),
    ("SYNC, beside another process", {"durability": Durability.SYNC}),
    ("ASYNC, alone", {"durability": Durability.ASYNC, "alone": True}),
    ("ASYNC, beside another process", {"durability": Durability.ASYNC}),
    ("a directory's fsync, beside another process", {"durability": Durability.SYNC, "call": "fsync"}),
]
"""What fails, and under whom."""

DISKS = 10
"""One in so many rounds, file systems are shut down, too."""


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Let the first, the second, ... flush fail, in each mode until a run has none left to fail, or so many runs."""
    if reason := failing.why_not():
        return Result(CLAIM, skipped=reason)
    result = Result(CLAIM, {"runs": 0, "acknowledged before": 0, "acknowledged after": 0, "refused": 0})
    left = dict(MODES)
    for number in count(1):
        for name in list(left):
            if result.figures["runs"] >= rounds:  # type: ignore[operator]
                break
            if not _fail(result, name, number, left[name], scratch):
                del left[name]
        if not left or result.figures["runs"] >= rounds:  # type: ignore[operator]
            break
    for file_system in machine.MAKING:
        _shut_down(result, file_system, max(1, rounds // DISKS), seed)
    if result.figures["acknowledged after"]:
        result.problems.append("sends returned after a flush had failed")
    return result


def _fail(result: Result, name: str, number: int, mode: dict[str, Any], scratch: Path) -> bool:
    """Let one call fail; return False when there is no such call any more."""
    with tempfile.TemporaryDirectory(prefix="failing-", dir=scratch) as directory:
        outcome = failing.inject(Path(directory) / "store", number, **mode)
    _add(result, "runs", 1)
    _add(result, "acknowledged before", outcome.acknowledged_before)
    _add(result, "acknowledged after", outcome.acknowledged_after)
    _add(result, "refused", outcome.refused)
    result.figures[f"calls that failed: {name}"] = number - 1 + bool(outcome.injected)
    result.problems += [f"{name}, call {number}: {problem}" for problem in outcome.problems]
    return bool(outcome.injected)


def _shut_down(result: Result, file_system: str, disks: int, seed: int) -> None:
    if reason := machine.why_not(file_system):
        result.figures[f"{file_system} left out"] = reason
        return
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, ignore_cleanup_errors=True) as directory:
        found = dead_disk.run(file_system, disks, seed, Path(directory))
    result.problems += [f"{file_system} shut down: {problem}" for problem in found["problems"]]
    _add(result, "acknowledged before", found.get("acknowledged_before", 0))
    _add(result, "acknowledged after", found.get("acknowledged_after", 0))
    _add(result, "refused", found.get("refused", 0))
    _add(result, "processes ended by SIGBUS", found.get("ended_by_sigbus", 0))
    _add(result, f"disks shut down, {file_system}", found.get("disks", 0))


def _add(result: Result, name: str, more: int) -> None:
    result.figures[name] = int(result.figures.get(name, 0)) + more


RIG = Rig("failed-flush", 200, run)
