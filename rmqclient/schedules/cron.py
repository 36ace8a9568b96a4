"""Cron: a function that makes a message at planned times, and these times.

This module neither sends nor looks at a clock: :mod:`rmqclient.schedules.cron_sender` does both.

A planned time is a **tick**. Every process that knows a schedule computes the same ticks from the same words, because
intervals are counted from 1970 rather than from the start of a process. So a tick and the name of its schedule identify
a message: together they are :meth:`Cron.key`, one of the keys that the message is stored with.

Expressions are those of ``crontab(5)``: minute, hour, day of month, month, day of week. Two rules of ``crontab(5)``
hold although the trigger of APScheduler 3 has others: Sunday is both 0 and 7, and if both the day of month and the day
of week are restricted, one match suffices. A field that begins with a star is not restricted.

APScheduler computes what a wall clock shows at the ticks, without a time zone, and this module finds the moments at
which the clock of the zone shows it. So the ticks of a night when the clocks change are the same whenever one asks.
"""

# ruff: noqa: PLC0415 - APScheduler costs 60 ms that a process without schedules never needs

from __future__ import annotations

import datetime
import inspect
import re
import zoneinfo
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from rmqclient.codecs import encode_body
from rmqclient.duration import Duration, in_seconds
from rmqclient.errors import HandlerError
from rmqclient.handler import is_async, is_generator
from rmqclient.message import Message
from rmqclient.names import check_schedule, check_topic, function_name

UTC = datetime.UTC
MISFIRE_GRACE = datetime.timedelta(minutes=1)
"""How late the message of a missed tick may be sent, unless the schedule says otherwise."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = datetime.timedelta(seconds=1)
_LONGEST = datetime.timedelta(days=366)
_INSTANT = datetime.timedelta(microseconds=1)
_DAY = datetime.timedelta(days=1)
_FIRST_LOOK = datetime.timedelta(minutes=1)
_FURTHEST_LOOK = datetime.timedelta(days=5_000)
"""More than the eight years from one 29 February to the next at most."""
_STEP = 8
_FIELDS = 5
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_PART = re.compile(r"(?:\*|[0-9]+(?:-[0-9]+)?)(?:/[0-9]+)?|[a-z]{3}(?:-[a-z]{3})?|last", re.IGNORECASE)
_NUMBERED_DAYS = re.compile(r"(?:\*|(?P<first>\d)(?:-(?P<last>\d))?)(?:/(?P<step>\d+))?")
_EXPECTED = "write it as `def report()` or `def report(tick)`, which returns the body of a message"


class Trigger(Protocol):
    """The part of a trigger of APScheduler that is used here."""

    def get_next_fire_time(
        self, previous: datetime.datetime | None, now: datetime.datetime, /
    ) -> datetime.datetime | None:
        """Return the first time from ``now`` on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """A function that makes a message at each tick. Made by :meth:`rmqclient.App.schedule`, which explains it."""

    name: str
    topic: str
    crontab: str = ""
    """Empty if the schedule has an interval."""

    every: datetime.timedelta | None = None
    timezone: str = "UTC"
    misfire_grace: datetime.timedelta = MISFIRE_GRACE
    coalesce: bool = True
    function: Callable[..., Any]
    """Returns the body of the message, or a Message, or None to send nothing."""

    @property
    def when(self) -> str:
        """The planned times in words, for a person."""
        return f"every {self.every}" if self.every is not None else f"{self.crontab} {self.timezone}"

    def ticks(self, after: datetime.datetime, to: datetime.datetime) -> Iterator[datetime.datetime]:
        """Yield the ticks after ``after``, up to and including ``to``, in order."""
        tick = self.next_tick(after)
        while tick is not None and tick <= to:
            yield tick
            tick = self.next_tick(tick)

    def last_tick(self, to: datetime.datetime, after: datetime.datetime | None = None) -> datetime.datetime | None:
        """Return the last tick up to ``to``; None if there is none after ``after``, or was none for years.

        It looks back further and further, as there may be as many ticks in a month as minutes.
        """
        first, back, begin = after or to - _FURTHEST_LOOK, _FIRST_LOOK, to
        while begin > first:
            begin = max(first, to - back)
            if ticks := deque(self.ticks(begin, to), maxlen=1):
                return ticks[0]
            back *= _STEP
        return None

    def next_tick(self, after: datetime.datetime) -> datetime.datetime | None:
        """Return the first tick after a time; None if the next thousands of years have no tick."""
        zone = UTC if self.every is not None else _zone(self.timezone)
        found = _next_moment(_trigger(self.crontab, self.every), zone, after.astimezone(UTC))
        return None if found is None else found.astimezone(zone)

    def key(self, tick: datetime.datetime) -> str:
        """Return the key of a tick's message, such as ``cron-report-2026-11-21T21:30:00Z``."""
        return f"cron-{self.name}-{tick.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"

    def message(self, tick: datetime.datetime) -> Message | None:
        """Call the function for a tick; return the message to send, with the tick's key as the last of its keys.

        None means that there is nothing to send. Raises HandlerError for a message of another topic, MessageRejected
        for a body that cannot be encoded, and whatever the function raises.
        """
        made = self.function(tick.astimezone(_zone(self.timezone))) if _takes_tick(self.function) else self.function()
        if made is None:
            return None
        if not isinstance(made, Message):
            return Message(self.topic, encode_body(made), keys=[self.key(tick)])
        if made.topic != self.topic:
            raise HandlerError(
                f"schedule {self.name!r} made a message of topic {made.topic!r}: its messages go to {self.topic!r}, "
                "where the schedule looks for them"
            )
        return Message(
            made.topic,
            made.body,
            tags=made.tags,
            keys=[*made.keys, self.key(tick)],
            properties=made.properties,
            flag=made.flag,
        )


def make_cron(
    function: Callable[..., Any],
    *,
    crontab: str | None,
    every: Duration | None,
    topic: str,
    name: str | None,
    timezone: str,
    misfire_grace: Duration,
    coalesce: bool,
) -> Cron:
    """Return a schedule of checked arguments of :meth:`rmqclient.App.schedule`. Raises HandlerError, InvalidName."""
    check_topic(topic)
    if name is None:
        name = str(getattr(function, "__name__", ""))
    check_schedule(name)
    if (crontab is None) == (every is None):
        raise HandlerError(
            f'schedule {name!r}: give a crontab expression, such as "*/5 * * * *", or every=, and not both'
        )
    if every is not None and timezone != "UTC":
        raise HandlerError(
            f"schedule {name!r}: timezone={timezone!r} is for a crontab expression: every= counts from 1970, in no zone"
        )
    grace = _checked_duration(name, "misfire_grace", misfire_grace)
    interval = None if every is None else _checked_duration(name, "every", every)
    if interval is not None and interval % _SECOND:
        raise HandlerError(f"schedule {name!r}: every={every!r} must be whole seconds")
    _check_function(name, function)
    if not isinstance(coalesce, bool):
        raise HandlerError(f"schedule {name!r}: coalesce={coalesce!r}: must be True or False")
    cron = Cron(
        name=name,
        topic=topic,
        crontab=crontab or "",
        every=interval,
        timezone=timezone,
        misfire_grace=grace,
        coalesce=coalesce,
        function=function,
    )
    _check_times(cron)
    return cron


def _checked_duration(name: str, option: str, duration: object) -> datetime.timedelta:
    try:
        seconds = in_seconds(option, duration, least=1.0, most=_LONGEST.total_seconds())
    except (TypeError, ValueError) as error:
        raise HandlerError(f"schedule {name!r}: {error}") from error
    return datetime.timedelta(seconds=seconds)


def _check_function(name: str, function: object) -> None:
    if not callable(function) or is_async(function) or is_generator(function):
        raise HandlerError(f"schedule {name!r}: {function!r} is not a plain function: {_EXPECTED}")
    try:
        takes = _required(function)
    except (TypeError, ValueError) as error:
        raise HandlerError(f"{function_name(function)} has unknown parameters: {_EXPECTED}") from error
    if len(takes) > 1 or any(each.kind is inspect.Parameter.KEYWORD_ONLY for each in takes):
        raise HandlerError(
            f"{function_name(function)}{inspect.signature(function)} takes too many arguments: {_EXPECTED}"
        )


def _check_times(cron: Cron) -> None:
    try:
        _zone(cron.timezone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError, TypeError) as error:
        raise HandlerError(
            f"schedule {cron.name!r}: timezone={cron.timezone!r} is not known: give a name such as Europe/Berlin"
        ) from error
    try:
        first = cron.next_tick(_EPOCH.replace(year=2000))
    except (ValueError, TypeError, AttributeError) as error:
        raise HandlerError(
            f"schedule {cron.name!r}: {cron.crontab!r} is not a crontab expression: {error}; give minute, hour, day of "
            "month, month and day of week"
        ) from error
    if first is None:
        raise HandlerError(f"schedule {cron.name!r}: {cron.crontab!r} never occurs")


def _takes_tick(function: Callable[..., Any]) -> bool:
    return bool(_required(function))


def _required(function: Callable[..., Any]) -> list[inspect.Parameter]:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        each
        for each in inspect.signature(function).parameters.values()
        if each.default is inspect.Parameter.empty and each.kind not in variadic
    ]


def _zone(name: str) -> zoneinfo.ZoneInfo:
    return zoneinfo.ZoneInfo(name)


# --- triggers -------------------------------------------------------------------------------------


@cache
def _trigger(crontab: str, every: datetime.timedelta | None) -> Trigger:
    """Return what computes the ticks of a wall clock. The trigger takes the wall clock for one that shows UTC."""
    from apscheduler.triggers.cron import CronTrigger
    from apscheduler.triggers.interval import IntervalTrigger

    found: Trigger
    if every is not None:
        found = IntervalTrigger(seconds=every.total_seconds(), start_date=_EPOCH, timezone=UTC)
        return found
    alternatives = [CronTrigger.from_crontab(each, timezone=UTC) for each in _alternatives(crontab)]
    found = alternatives[0]
    if len(alternatives) > 1:
        from apscheduler.triggers.combining import OrTrigger

        found = OrTrigger(alternatives)
    return found


def _alternatives(crontab: str) -> list[str]:
    """Return the expressions of APScheduler that together mean one expression of crontab(5). Raises ValueError."""
    fields = crontab.split()
    if len(fields) != _FIELDS:
        raise ValueError(f"it has {len(fields)} fields instead of {_FIELDS}")
    for part in crontab.replace(",", " ").split():
        if not _PART.fullmatch(part):
            raise ValueError(
                f"{part!r} is no number, name, range or step of one: forms of other schedulers, such as mon#1, 5L, 15W "
                "and ?, mean nothing here"
            )
    minute, hour, day, month, numbered = fields
    weekday = ",".join(_named_days(part) for part in numbered.split(","))
    if day.startswith("*") or numbered.startswith("*"):
        return [f"{minute} {hour} {day} {month} {weekday}"]
    return [f"{minute} {hour} {day} {month} *", f"{minute} {hour} * {month} {weekday}"]


def _named_days(part: str) -> str:
    """Return a part of the field for days of week with names, which APScheduler and crontab(5) read alike."""
    found = _NUMBERED_DAYS.fullmatch(part)
    if found is None or part == "*":
        return part
    first = int(found["first"] or 0)
    last = int(found["last"] or (first if found["first"] and not found["step"] else 6))
    days = range(first, last + 1, int(found["step"] or 1))
    if not days or days[-1] > 7:
        raise ValueError(f"{part!r} is not a day of week: 0 is Sunday, 6 Saturday, and 7 Sunday again")
    return ",".join(_WEEKDAYS[day % 7] for day in days)


# --- wall clocks ----------------------------------------------------------------------------------


def _next_moment(trigger: Trigger, zone: datetime.tzinfo, after: datetime.datetime) -> datetime.datetime | None:
    """Return the first moment after another at which the clock of the zone shows a time of the trigger.

    When the clocks change, what is later on the wall may be earlier in truth. So the search begins at the earliest that
    a clock may show by now, and ends when no clock could show the time that follows before the moment that was found.
    """
    shown: datetime.datetime | None = after + min(_offsets(zone, after))
    found: datetime.datetime | None = None
    while shown is not None and (found is None or shown < found + max(_offsets(zone, found))):
        shown = trigger.get_next_fire_time(None, shown + _INSTANT)
        moments = [] if shown is None else [each for each in _moments(zone, shown) if each > after]
        found = min(moments if found is None else [found, *moments], default=None)
    return found


def _moments(zone: datetime.tzinfo, shown: datetime.datetime) -> list[datetime.datetime]:
    """Return when the clock shows a time: twice if it was set back, and as much later as it was set forward."""
    first, second = (shown.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return [first, max(first, second)]


def _offsets(zone: datetime.tzinfo, moment: datetime.datetime) -> list[datetime.timedelta]:
    """Return how far the clock of the zone is ahead of UTC a day before, at, and a day after a moment."""
    days = (moment - _DAY, moment, moment + _DAY)
    return [day.astimezone(zone).utcoffset() or datetime.timedelta(0) for day in days]
