"""Failing: dead letters of one kind, counted in one window of time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Failing:
    """Dead letters of one kind in one window of time."""

    start_ms: int
    end_ms: int
    group: str
    topic: str
    handler: str | None
    error: str | None
    messages: int
    attempts: int
    """Sum of the delivery attempts of these dead letters."""

    first_ms: int
    last_ms: int
    example: str
    """Text of the last exception of one of these dead letters."""

    example_id: str
