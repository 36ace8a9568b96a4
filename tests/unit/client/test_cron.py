"""When a schedule has its times, and which message belongs to each."""

from __future__ import annotations

import datetime
import functools
import zoneinfo
from collections.abc import Callable
from typing import Any

import pytest

from rmqclient import App, Message
from rmqclient.errors import HandlerError, InvalidName
from rmqclient.schedules.cron import Cron

UTC = datetime.UTC
MINUTE = datetime.timedelta(minutes=1)


def report() -> bytes:
    return b"report"


def cron_of(crontab: str | None = None, function: Callable[..., Any] = report, **options: Any) -> Cron:
    app = App()
    app.schedule(crontab, topic=options.pop("topic", "reports"), **options)(function)
    return app.crons[0]


def at(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=UTC)


def times(cron: Cron, after: str, to: str) -> list[str]:
    return [f"{tick.astimezone(UTC):%Y-%m-%d %H:%M:%S}" for tick in cron.ticks(at(after), at(to))]


def test_the_ticks_of_a_crontab_expression_come_after_one_time_and_up_to_another() -> None:
    assert times(cron_of("*/5 * * * *"), "2026-11-21 12:00", "2026-11-21 12:15") == [
        "2026-11-21 12:05:00",
        "2026-11-21 12:10:00",
        "2026-11-21 12:15:00",
    ]


def test_intervals_are_counted_from_1970_so_that_every_process_has_the_same_ticks() -> None:
    seven = cron_of(every=datetime.timedelta(seconds=7))
    found = times(seven, "2026-11-21 12:00:00", "2026-11-21 12:00:30")
    assert len(found) == 4
    assert all(at(tick).timestamp() % 7 == 0 for tick in found)
    # And one tick follows the other, at any distance
    tick: datetime.datetime | None = at("2026-11-21 12:00:00")
    for _ in range(1_000):
        assert tick is not None
        following = seven.next_tick(tick)
        assert following is not None
        assert following - tick <= datetime.timedelta(seconds=7)
        assert following.timestamp() % 7 == 0
        assert following > tick
        tick = following


def test_an_expression_is_read_in_its_time_zone_also_when_the_clocks_change() -> None:
    berlin = cron_of("30 2 * * *", timezone="Europe/Berlin")
    # The night of 28 March 2027 has no 2:30, and 3:30 stands for it; that of 31 October has two, which both count
    assert times(berlin, "2027-03-27 12:00", "2027-03-29 12:00") == ["2027-03-28 01:30:00", "2027-03-29 00:30:00"]
    assert times(berlin, "2027-10-30 12:00", "2027-11-01 12:00") == [
        "2027-10-31 00:30:00",
        "2027-10-31 01:30:00",
        "2027-11-01 01:30:00",
    ]


@pytest.mark.parametrize(
    ("zone", "crontab", "begin", "end"),
    [
        ("Europe/Berlin", "30 2 * * *", "2027-03-27 12:00", "2027-03-29 12:00"),
        ("Europe/Berlin", "*/20 1-3 * * *", "2027-03-27 22:00", "2027-03-28 04:00"),
        ("Europe/Berlin", "*/20 1-3 * * *", "2027-10-30 22:00", "2027-10-31 04:00"),
        ("Australia/Lord_Howe", "*/10 1-2 * * *", "2026-10-03 13:00", "2026-10-03 17:00"),
        ("Australia/Lord_Howe", "*/10 1-2 * * *", "2026-04-04 13:00", "2026-04-04 17:00"),
        ("America/Havana", "30 0 * * *", "2026-03-07 12:00", "2026-03-09 12:00"),
    ],
)
def test_the_ticks_are_the_same_whenever_one_asks_also_while_the_clocks_change(
    zone: str, crontab: str, begin: str, end: str
) -> None:
    cron = cron_of(crontab, timezone=zone)
    planned = list(cron.ticks(at(begin), at(end)))
    moment = at(begin)
    while moment < planned[-1]:
        assert cron.next_tick(moment) == next(tick for tick in planned if tick > moment), moment
        moment += MINUTE


@pytest.mark.parametrize(
    ("zone", "crontab", "night", "ticks"),
    [
        ("America/Havana", "0 0 * * sun", "2026-03-08", ["2026-03-08 05:00:00"]),
        ("America/Havana", "30 0 * * *", "2026-03-08", ["2026-03-08 05:30:00"]),
        ("Africa/Cairo", "0 0 * * *", "2026-04-24", ["2026-04-23 22:00:00"]),
        ("Asia/Beirut", "0 0 * * *", "2026-03-29", ["2026-03-28 22:00:00"]),
        ("America/Santiago", "0 0 * * *", "2026-09-06", ["2026-09-06 04:00:00"]),
        # The clock skips half an hour here, and the time comes half an hour later
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-04", ["2026-10-03 15:45:00"]),
        # A time that stands for one that does not exist, and is one itself, comes once
        ("Europe/Berlin", "30 2,3 * * *", "2026-03-29", ["2026-03-29 01:30:00"]),
        # Of a time that exists twice the first comes after all earlier ones, and the second before all later ones
        (
            "Europe/Berlin",
            "0,30 2 * * *",
            "2026-10-25",
            ["2026-10-25 00:00:00", "2026-10-25 00:30:00", "2026-10-25 01:00:00", "2026-10-25 01:30:00"],
        ),
    ],
)
def test_each_time_of_a_night_when_the_clocks_change_comes_also_where_they_change_at_midnight(
    zone: str, crontab: str, night: str, ticks: list[str]
) -> None:
    begin = at(night).replace(tzinfo=zoneinfo.ZoneInfo(zone)) - 2 * 60 * MINUTE
    end = at(night).replace(hour=6, tzinfo=zoneinfo.ZoneInfo(zone))
    found = cron_of(crontab, timezone=zone).ticks(begin, end)
    assert [f"{tick.astimezone(UTC):%Y-%m-%d %H:%M:%S}" for tick in found] == ticks


@pytest.mark.parametrize(
    ("field", "days"),
    [
        ("0", {"Sun"}),
        ("7", {"Sun"}),
        ("1-5", {"Mon", "Tue", "Wed", "Thu", "Fri"}),
        ("5-7", {"Fri", "Sat", "Sun"}),
        ("*/2", {"Sun", "Tue", "Thu", "Sat"}),
        ("1-5/2", {"Mon", "Wed", "Fri"}),
        ("sat,0", {"Sat", "Sun"}),
        ("mon-wed", {"Mon", "Tue", "Wed"}),
    ],
)
def test_days_of_week_are_numbered_as_crontab_numbers_them(field: str, days: set[str]) -> None:
    cron = cron_of(f"0 9 * * {field}")
    assert {f"{tick:%a}" for tick in cron.ticks(at("2026-11-01"), at("2026-11-29"))} == days


def test_of_a_day_of_month_and_a_day_of_week_one_must_match_as_in_crontab() -> None:
    found = [tick.day for tick in cron_of("0 9 13 * 5").ticks(at("2026-11-01"), at("2026-11-30"))]
    assert found == [6, 13, 20, 27]  # Friday the 13th is one of them
    found = [tick.day for tick in cron_of("0 9 15 * 5").ticks(at("2026-11-01"), at("2026-11-30"))]
    assert found == [6, 13, 15, 20, 27]


@pytest.mark.parametrize("fields", ["1-14 * */7", "*/1 * 0", "1-14 * */7,0"])
def test_a_day_that_is_written_with_a_star_restricts_the_other_one_as_in_crontab(fields: str) -> None:
    found = cron_of(f"0 9 {fields}").ticks(at("2026-11-01"), at("2026-11-15"))
    assert [tick.day for tick in found] == [1, 8]  # the Sundays


def test_the_key_of_a_tick_is_the_same_in_every_zone() -> None:
    tick = at("2026-11-21 21:30")
    utc, berlin = cron_of("* * * * *"), cron_of("* * * * *", timezone="Europe/Berlin")
    assert utc.key(tick) == "cron-report-2026-11-21T21:30:00Z"
    assert next(berlin.ticks(tick - MINUTE, tick)).hour == 22
    assert berlin.key(next(berlin.ticks(tick - MINUTE, tick))) == utc.key(tick)


def test_what_the_function_returns_becomes_a_message_with_the_key_of_its_tick() -> None:
    tick = at("2026-11-21 21:30")
    key = "cron-daily-2026-11-21T21:30:00Z"

    def made(result: object) -> Message | None:
        return cron_of("* * * * *", lambda: result, name="daily").message(tick)

    text = made("text")
    assert text is not None
    assert (text.topic, text.body, text.keys) == ("reports", b"text", (key,))
    whole = made(Message("reports", b"x", tags="t", keys=["k"], properties={"a": "b"}, flag=3))
    assert whole is not None
    assert (whole.body, whole.tags, whole.keys, whole.properties, whole.flag) == (b"x", "t", ("k", key), {"a": "b"}, 3)
    assert made(None) is None
    with pytest.raises(HandlerError, match="a message of topic 'other'"):
        made(Message("other", b""))


def test_a_function_that_takes_the_tick_gets_it_in_the_zone_of_the_schedule() -> None:
    asked: list[datetime.datetime] = []

    def daily(tick: datetime.datetime) -> None:
        asked.append(tick)

    assert cron_of("0 0 * * *", daily, timezone="Europe/Berlin").message(at("2026-11-20 23:00")) is None
    assert [each.isoformat() for each in asked] == ["2026-11-21T00:00:00+01:00"]


def test_a_partial_function_needs_a_name() -> None:
    with pytest.raises(InvalidName, match="schedule ''"):
        cron_of("* * * * *", functools.partial(report))
    assert cron_of("* * * * *", functools.partial(report), name="part").message(at("2026-11-21")) is not None


async def not_plain() -> None: ...


def takes_two(_one: object, _two: object) -> None: ...


@pytest.mark.parametrize(
    ("crontab", "function", "options", "said"),
    [
        (None, report, {}, "give a crontab expression"),
        ("* * * * *", report, {"every": MINUTE}, "not both"),
        ("* * * *", report, {}, "4 fields"),
        ("61 * * * *", report, {}, "is not a crontab expression"),
        ("* * * * 8", report, {}, "not a day of week"),
        ("* * * * 5-1", report, {}, "not a day of week"),
        ("0 0 30 2 *", report, {}, "never occurs"),
        ("0 0 * * mon#1", report, {}, "forms of other schedulers"),
        ("0 0 last-3 * *", report, {}, "forms of other schedulers"),
        ("0 0 * jan/2 *", report, {}, "forms of other schedulers"),
        ("\u0663 0 * * *", report, {}, "forms of other schedulers"),
        ("* * * * *", report, {"timezone": "Mars/Olympus"}, "timezone='Mars/Olympus' is not known"),
        ("* * * * *", report, {"misfire_grace": datetime.timedelta(0)}, "misfire_grace"),
        (None, report, {"every": datetime.timedelta(milliseconds=1_500)}, "whole seconds"),
        (None, report, {"every": 1.5}, "whole seconds"),
        (None, report, {"every": 60, "timezone": "Europe/Berlin"}, "timezone='Europe/Berlin'"),
        (None, report, {"every": 0.5}, "must be from 1 s to"),
        (None, report, {"every": "5"}, "give a timedelta, or a number of seconds"),
        ("* * * * *", not_plain, {}, "not a plain function"),
        ("* * * * *", takes_two, {}, "takes too many arguments"),
        ("* * * * *", 7, {"name": "seven"}, "not a plain function"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_where_it_is_written(
    crontab: str | None, function: Any, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(HandlerError, match=said):
        cron_of(crontab, function, **options)


def test_names_are_checked_and_stand_for_one_schedule_of_a_topic() -> None:
    app = App()
    app.schedule("* * * * *", topic="reports")(report)
    with pytest.raises(HandlerError, match="has a schedule 'report' already"):
        app.schedule("0 * * * *", topic="reports")(report)
    app.schedule("0 * * * *", topic="other")(report)
    with pytest.raises(InvalidName, match="schedule"):
        app.schedule("* * * * *", topic="reports", name="no name!")(report)
    with pytest.raises(InvalidName, match="topic"):
        app.schedule("* * * * *", topic="no topic!")(report)
    assert [cron.when for cron in app.crons] == ["* * * * * UTC", "0 * * * * UTC"]
