"""Cost: what a child has done, and the processor time that it took."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.measure import Span


class Worked(NamedTuple):
    """Messages of one process: sent, or handled."""

    span: Span
    """From the first message that counts to the last one; the rate comes from it."""
    messages: int
    """All of them, from the start of the clock of the processor to its end."""
    processor_s: float
    """Of all threads of the process."""


def per_processor_second(*worked: Worked) -> float:
    """Return messages a second of processor time, of processes that ran together."""
    return sum(each.messages for each in worked) / sum(each.processor_s for each in worked)
