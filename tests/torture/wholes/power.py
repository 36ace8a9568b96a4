"""Power cuts under real processes, thousands of times, on ext4 and on xfs."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.power import cuts
from tests.power.disks.machine import MAKING, why_not
from tests.torture.result import Result, Rig

CLAIM = (
    "A power cut takes no SYNC message whose send returned, of the ASYNC ones only those that no flush has "
    "covered yet; it leaves no message in part or in two places, and brings none back."
)
MEMORY = Path("/dev/shm")
"""Where the images are, when it is there: what is cut is the file system, however fast the disk below it is."""


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Cut the power so many times, half of them on each file system."""
    file_systems = {name: why_not(name) for name in MAKING}
    if all(file_systems.values()):
        return Result(CLAIM, skipped="; ".join(f"{name}: {reason}" for name, reason in file_systems.items()))
    usable = [name for name, reason in file_systems.items() if not reason]
    result = Result(CLAIM)
    total: Counter[str] = Counter()
    for number, name in enumerate(usable):
        share = rounds // len(usable) + (number < rounds % len(usable))
        found = cut(name, share, seed + number, scratch)
        result.problems += [f"{name}: {problem}" for problem in found.pop("problems")]
        result.figures[f"cuts on {name}"] = found.pop("cuts", 0)
        _add(result.figures, total, found)
    result.figures |= {name.replace("_", " "): count for name, count in total.items()}
    result.figures |= {f"{name} left out": reason for name, reason in file_systems.items() if reason}
    return result


def cut(file_system: str, rounds: int, seed: int, scratch: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(
        prefix="rmq-power-", dir=MEMORY if MEMORY.is_dir() else scratch, ignore_cleanup_errors=True
    ) as directory:
        return cuts.run(file_system, rounds, seed, Path(directory))


def _add(figures: dict[str, int | float | str], total: Counter[str], found: dict[str, Any]) -> None:
    """Sum up what is counted; of what is measured keep the largest."""
    seconds = found.pop("seconds", 0.0)
    oldest = found.pop("oldest_lost_ms", 0.0)
    figures["oldest lost ASYNC message, ms"] = max(oldest, figures.get("oldest lost ASYNC message, ms", 0.0))
    figures["seconds of cutting"] = round(float(figures.get("seconds of cutting", 0)) + seconds, 1)
    total.update(found)


RIG = Rig("power", 10_000, run)
