"""Durations: a timedelta or seconds, and every other value refused by the argument's name."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from rmqclient import duration
from rmqclient.duration import Duration, in_seconds, moment_in


@pytest.mark.parametrize("duration", [1.5, timedelta(seconds=1, milliseconds=500)])
def test_a_duration_is_a_timedelta_or_seconds(duration: Duration) -> None:
    assert in_seconds("pause", duration) == 1.5


@pytest.mark.parametrize("duration", [2, timedelta(seconds=2)])
def test_the_limits_are_durations_too(duration: Duration) -> None:
    assert in_seconds("pause", duration, least=2, most=2) == 2.0


@pytest.mark.parametrize("duration", ["1", None, True, (1,)])
def test_another_type_is_refused(duration: Any) -> None:
    with pytest.raises(TypeError, match=r"^pause=.*give a timedelta, or a number of seconds"):
        in_seconds("pause", duration)


@pytest.mark.parametrize(
    ("duration", "most", "words"),
    [
        (-0.1, math.inf, "pause=-0.1: must be at least 0 s"),
        (timedelta(microseconds=-1), math.inf, "must be at least 0 s"),
        (math.nan, math.inf, "must be at least 0 s"),
        (61, 60, "pause=61: must be from 0 s to 60 s"),
        (math.inf, 86_400, "must be from 0 s to 86,400 s"),
    ],
)
def test_a_duration_out_of_its_limits_is_refused(duration: Duration, most: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        in_seconds("pause", duration, most=most)


def test_a_time_of_day_is_when_the_clock_of_this_host_last_showed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    at = datetime.fromisoformat("2026-03-04T15:00").timestamp()
    monkeypatch.setattr(duration, "time", SimpleNamespace(time=lambda: at))
    assert moment_in("14:05") == round((at - 55 * 60) * 1000)
    assert moment_in("9:05:30") == moment_in("2026-03-04T09:05:30")
    assert moment_in("15:01") == moment_in("2026-03-03T15:01")
    with pytest.raises(ValueError, match="not a time"):
        moment_in("25:00")


def test_a_number_without_a_unit_is_no_time_but_a_date_of_digits_is_one() -> None:
    assert moment_in("20260304") == moment_in("2026-03-04")
    for text in ("99999999", "100", "0", "1.5"):
        with pytest.raises(ValueError, match=f"'{text}' is not a time"):
            moment_in(text)
