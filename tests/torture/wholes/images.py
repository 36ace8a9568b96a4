"""Power cuts: images of what a disk can hold after one, a million of them, recovered and judged."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.images import scenario
from tests.torture.result import Result, Rig

CLAIM = (
    "Whatever a power cut leaves of a store, torn at words, sectors or pages, recovery finds all that was flushed, and "
    "nothing that was not sent."
)


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Judge so many images. They are kept in memory where there is some, because a disk would only make it slow."""
    with tempfile.TemporaryDirectory(prefix="rmq-images-", dir=scenario.memory() or scratch) as directory:
        figures = scenario.run(seed, rounds, Path(directory))
    counts: dict[str, int | float | str] = {
        name.replace("_", " "): count for name, count in asdict(figures).items() if isinstance(count, int)
    }
    counts |= {f"images of {kind}": count for kind, count in sorted(figures.kinds.items())}
    return Result(CLAIM, counts, figures.problems)


RIG = Rig("images", 1_000_000, run)
