"""Sweeps over every length or line: a quick run takes every seventh, the tests marked ``sweep`` take all others."""

from __future__ import annotations

import pytest

APART = 7

each_step = pytest.mark.parametrize(
    "steps",
    [
        pytest.param(frozenset({0}), id="every seventh"),
        pytest.param(frozenset(range(1, APART)), id="all others", marks=pytest.mark.sweep),
    ],
)
"""Gives a test the ``steps`` that it takes: it takes a number when :func:`is_taken` says so."""


def is_taken(number: int, steps: frozenset[int]) -> bool:
    """Return whether a length or a line belongs to this part of the sweep."""
    return number % APART in steps
