"""Random ``kill -9`` of senders and consumers, thousands of times."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from tests.crash.campaign import Campaign
from tests.torture.result import Result, Rig

CLAIM = "No kill loses, invents, damages or reorders a message, and only what was in flight is delivered again."


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Do so many rounds of bursts and kills over one store."""
    figures = Campaign(scratch, seed).run(rounds)
    counts: dict[str, int | float | str] = {
        name.replace("_", " "): count for name, count in asdict(figures).items() if isinstance(count, int)
    }
    problems = [f"{name}: {count}" for name, count in figures.faults.items() if count]
    return Result(CLAIM, counts, problems + figures.problems)


RIG = Rig("kills", 5_000, run)
