"""What a rig reports: figures, the seed to repeat them with, and what it found wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Result:
    """The outcome of one rig. ``problems`` is empty when the claim held; ``skipped`` says why the rig did not run."""

    claim: str
    """What the rig tried to refute, in one sentence."""
    figures: dict[str, int | float | str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    skipped: str = ""

    def __str__(self) -> str:
        """Return the figures in one line, and the first problems."""
        if self.skipped:
            return f"skipped: {self.skipped}"
        figures = ", ".join(f"{name} {value}" for name, value in self.figures.items())
        return "\n".join([figures, *(f"PROBLEM {problem}" for problem in self.problems[:20])])


@dataclass(frozen=True, slots=True)
class Rig:
    """A rig: ``run(seed, rounds, scratch)`` does so many rounds inside ``scratch``, an empty directory on a disk."""

    name: str
    rounds: int
    """Of the whole run. A quick one, in ``make test``, asks for fewer."""
    run: Callable[[int, int, Path], Result]
