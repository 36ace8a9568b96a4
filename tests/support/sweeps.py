"""Sweeps over every length, line or step, and what repeats itself by chance: how much of it a run takes.

A sweep has two parts: a quick run takes every seventh case, the tests marked ``sweep`` take all others. Random rounds,
images and examples are as many as a file says. ``RMQ_TEST_SHARE=0.25``, which `make test` sets, takes a quarter.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any

import pytest

APART = 7

SHARE = float(os.environ.get("RMQ_TEST_SHARE", "1"))
"""The part of the random cases that this run takes, above 0."""

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


def each_seventh(values: Iterable[object]) -> list[Any]:
    """Return parameters of a test, for a tuple more than one: all but every seventh are marked ``sweep``."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=() if taken else pytest.mark.sweep)
        for taken, value in ((number % APART == 0, value) for number, value in enumerate(values))
    ]


def share_of(count: int) -> int:
    """Return how many of ``count`` random cases this run takes, at least 1."""
    return math.ceil(count * SHARE)
