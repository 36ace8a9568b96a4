"""What a worker runs before it imports its target."""

from __future__ import annotations

begun: list[str] = []


def begin() -> None:
    """Note it."""
    begun.append("begun")
