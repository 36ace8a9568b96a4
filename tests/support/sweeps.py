"""Sweeps over every length, line or step, and what repeats itself by chance: how much of it a run takes.

A sweep has two parts: a quick run takes some cases, the tests marked ``sweep`` take all others. Random rounds, images
and examples are as many as a file says. ``RMQ_TEST_SHARE=0.25``, which `make test` sets, takes a quarter of these, of
the steps of a sweep, and of the planted faults.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import product
from typing import Any

import pytest

APART = 7
STEPS_APART = 41

SHARE = float(os.environ.get("RMQ_TEST_SHARE", "1"))
"""The part of the random cases that this run takes, above 0."""

STEP_PARTS = 8

_QUICK = frozenset({0})

_STRIDE = round(1 / min(SHARE, 1))
_TURN = random.SystemRandom().randrange(_STRIDE)
"""A run that takes a part of the random cases takes each line of so many; the name of the directory tells which."""

each_step = pytest.mark.parametrize(
    "steps",
    [
        pytest.param(_QUICK, id="every forty-first"),
        *(
            pytest.param(
                frozenset(range(1 + part, STEPS_APART, STEP_PARTS)), id=f"part {part}", marks=pytest.mark.sweep
            )
            for part in range(STEP_PARTS)
        ),
    ],
)
"""Gives a test the ``steps`` that it takes: it takes a number when :func:`is_taken` says so.

The others come in parts, because a test has five minutes, on a busy machine, too.
"""


def is_taken(number: int, steps: frozenset[int]) -> bool:
    """Return whether a length or a line belongs to this part of the sweep."""
    turn, step = divmod(number, STEPS_APART)
    return step in steps and (steps == _QUICK or turn % _STRIDE == _TURN)


def each_seventh(values: Iterable[object]) -> list[Any]:
    """Return parameters of a test, for a tuple more than one: all but every seventh are marked ``sweep``."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=() if taken else pytest.mark.sweep)
        for taken, value in ((number % APART == 0, value) for number, value in enumerate(values))
    ]


def crossed(names: str, *axes: Sequence[object]) -> pytest.MarkDecorator:
    """Give a test every combination of values, one axis for each name.

    A quick run takes as many as the longest axis has values: each value of each axis, and the neighbours together.
    """
    taken = {tuple(number % len(axis) for axis in axes) for number in range(max(map(len, axes)))}
    return pytest.mark.parametrize(
        names.split(", "),
        [
            pytest.param(
                *(axis[place] for axis, place in zip(axes, places, strict=True)),
                marks=() if places in taken else pytest.mark.sweep,
            )
            for places in product(*(range(len(axis)) for axis in axes))
        ],
        ids=name_of,
    )


def in_turns(fixture: str, items: Iterable[pytest.Item]) -> None:
    """Let the cases of each test take turns with the parameters of a fixture; other combinations become sweeps.

    A quick run takes each case and each parameter of the fixture at least once. To be called when tests are collected.
    """
    tests: dict[tuple[str, str], list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and fixture in item.fixturenames and not item.get_closest_marker("sweep"):
            tests.setdefault((str(item.path), item.originalname), []).append(item)
    for combined in tests.values():
        combined.sort(key=lambda item: item.name)  # each worker takes the same ones, in whatever order they come
        cases = list(dict.fromkeys(_without(fixture, item) for item in combined))
        parameters = list(dict.fromkeys(item.callspec.params[fixture] for item in combined))
        taken = {
            (cases[number % len(cases)], parameters[number % len(parameters)])
            for number in range(max(len(cases), len(parameters)))
        }
        for item in combined:
            if (_without(fixture, item), item.callspec.params[fixture]) not in taken:
                item.add_marker("sweep")


def _without(fixture: str, item: pytest.Function) -> tuple[int, ...]:
    """Return what tells the case of an item from others: the same objects, whatever the parameter of ``fixture``."""
    return tuple(id(value) for name, value in item.callspec.params.items() if name != fixture)


def name_of(value: object) -> str:
    """Return what stands for a value in the name of a test: a crash point's name, a function's, the text of others."""
    name = value.name.lower() if isinstance(value, Enum) else getattr(value, "__name__", value)
    return str(name)


def share_of(count: int) -> int:
    """Return how many of ``count`` random cases this run takes, at least 1."""
    return math.ceil(count * SHARE)
