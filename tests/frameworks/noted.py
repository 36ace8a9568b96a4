"""What a worker imports: a function that runs before, and a handler."""

from __future__ import annotations

begun: list[str] = []


def begin() -> None:
    """Note it."""
    begun.append("begun")


def handle(body: str) -> None:
    """Do nothing."""
