"""Ranges of the past say what the rows of the history say, and keep it in little room."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest

pytest.importorskip("starlette", reason="the dashboard needs Starlette")

from rmqclient.dashboard.looking.past import Range
from rmqclient.metrics import Point
from rmqclient.store.history.rings import CLASSES, Row

BUSY = tuple([0] * (CLASSES - 2) + [3, 1])
QUIET = (0,) * CLASSES


def points() -> Iterator[Point]:
    yield Point(1_000, 11_000, {"billing": Row(published=50, handled=20, lag=30, oldest_s=4, ran=BUSY)})
    yield Point(11_000, 21_000, {})
    rows = {
        "billing": Row(handled=30, skipped=5, dead_lettered=1, failed=2, lag=9, oldest_s=7, waited=BUSY, ran=BUSY),
        "mails": Row(published=10, lag=10, oldest_s=9),
    }
    yield Point(21_000, 26_000, rows)


def test_a_range_sums_what_each_group_did_and_knows_how_it_stood_at_the_end() -> None:
    known = Range("10m", 0, 30_000, points())
    billing, mails = known.figures()["billing"], known.figures()["mails"]
    assert billing.row == Row(50, 50, 2, 0, 1, 5, 0, 30, 7, BUSY, tuple(2 * each for each in BUSY))
    assert (billing.lag, billing.seconds) == (9, 25)
    assert (mails.lag, mails.row.waited) == (10, QUIET)
    assert known.paces() == {"billing": 6.0, "mails": 0.0}
    assert known.lags("billing") == [30, 0, 9]


def test_charts_have_a_number_for_each_part_of_one_group_and_of_all() -> None:
    known = Range("10m", 0, 30_000, points())
    every, billing = known.series(), known.series("billing")
    assert every["t"] == billing["t"] == [11, 21, 26]
    assert every["published"] == [5, 0, 2]
    assert every["handled"] == billing["handled"] == [2, 0, 7]
    assert every["born"] == billing["born"] == [0, 0, 0.2]
    assert (every["lag"], billing["lag"]) == ([30, 0, 19], [30, 0, 9])
    assert (every["oldest"], billing["oldest"]) == ([4, 0, 9], [4, 0, 7])
    assert "ran" not in every
    assert (billing["waited"], billing["ran"]) == ([QUIET, QUIET, BUSY], [BUSY, QUIET, BUSY])


def test_a_range_of_which_nothing_is_known_is_empty() -> None:
    known = Range("1h", 0, 30_000, [])
    assert (known.figures(), known.paces(), known.lags("billing")) == ({}, {}, [])
    assert set(map(tuple, known.series("billing").values())) == {()}


def test_an_hour_of_a_hundred_busy_groups_is_kept_in_some_megabytes() -> None:
    def hour() -> Iterator[Point]:
        for at in range(0, 3_600_000, 10_000):
            rows = {
                f"group-{each}": Row(at, at, 1, 1, 1, 0, 0, 7_000 + at, 600, (*BUSY,), (*BUSY,)) for each in range(107)
            }
            yield Point(at, at + 10_000, rows)

    tracemalloc.start()
    try:
        known = Range("1h", 0, 3_600_000, hour())
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(known.figures()) == 107
    assert kept < 9 << 20, "240 bytes a row at most"
    assert most < kept + (2 << 20), "rows are not there all at once"
