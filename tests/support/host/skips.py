"""Skips: how many tests a run left out, and what would let them run, in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

INSTALL_ALL = "make install-all"


def told(reasons: Iterable[str]) -> str:
    """Return the line for the reasons of all skipped tests; empty without any.

    Reasons that name ``make install-all`` count together: it brings all that they lack. A file that was not collected
    for its reason counts once.
    """
    counts = Counter(f"`{INSTALL_ALL}` brings what they need" if INSTALL_ALL in each else each for each in reasons)
    parts = [f"{number}: {reason}" for reason, number in counts.most_common()]
    return f"skipped: {counts.total()} ({'; '.join(parts)})" if parts else ""
