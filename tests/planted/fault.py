"""A fault that is planted on purpose: one changed piece of text, and the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``old`` stands in ``file`` exactly once and is replaced by ``new``."""

    name: str
    file: str
    old: str
    new: str
    tests: str
    """File with the tests that must fail."""

    select: str = ""
    """Which of them, as for pytest's ``-k``; empty for all."""

    @property
    def is_compiled(self) -> bool:
        """Whether the kernel has to be built again."""
        return Path(self.file).suffix in {".pyx", ".pxi", ".h"}
