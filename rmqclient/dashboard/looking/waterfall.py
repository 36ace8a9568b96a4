"""Waterfall: the life of a message as bars over time, one lane for each group.

The store keeps when a message was stored, delayed, failed or given up, and when its durable steps ended; the message
trace, if it is on, keeps when each call began and ended. What neither tells is one bar for both, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqclient.admin.life import Step
from rmqclient.dashboard.looking.answers import Answer
from rmqclient.health.words import age

_SAME_MS = 250
"""A call that the trace says has failed, and the failure in the history, are one if they are no further apart."""
_CALLS = ("handled", "not handled", "begun")


class Bar(NamedTuple):
    """Some time of a message in a group."""

    kind: str
    """``waits``, ``runs``, ``hangs``, ``retry``, ``sleeps``, ``step`` or ``either``, which is waiting and running."""
    begin_ms: int
    end_ms: int
    text: str

    @property
    def words(self) -> str:
        """The bar in words."""
        return f"{self.text} {age(max(0, self.end_ms - self.begin_ms) / 1000)}"


class Point(NamedTuple):
    """A moment of a message in a group."""

    tone: str
    at_ms: int
    text: str


class Lane(NamedTuple):
    """What one group did with a message."""

    answer: Answer
    bars: tuple[Bar, ...]
    points: tuple[Point, ...]


class Waterfall(NamedTuple):
    """Every lane, and the period that they are drawn over."""

    begin_ms: int
    end_ms: int
    lanes: tuple[Lane, ...]

    def at(self, ms: int) -> float:
        """Return where a moment stands, from 0 to 1,000."""
        return round((ms - self.begin_ms) / max(1, self.end_ms - self.begin_ms) * 1000, 1)


def waterfall_of(life: list[Step], answers: list[Answer], now_ms: int) -> Waterfall:
    """Return the lanes of a life, in the order of the answers."""
    begin = min((step.at_ms for step in life if step.at_ms is not None), default=now_ms)
    stored = next((step.at_ms for step in life if step.event == "stored" and step.at_ms), begin)
    lanes = [_lane(answer, [step for step in life if step.group == answer.group], stored, now_ms) for answer in answers]
    end = max((each for lane in lanes for each in _ends(lane)), default=now_ms)
    return Waterfall(begin, max(end, begin + 1), tuple(lanes))


def _ends(lane: Lane) -> Iterator[int]:
    yield from (bar.end_ms for bar in lane.bars)
    yield from (point.at_ms for point in lane.points)


def _lane(answer: Answer, steps: list[Step], stored_ms: int, now_ms: int) -> Lane:
    bars: list[Bar] = []
    points: list[Point] = []
    at, is_done = stored_ms, False
    traced = [step.at_ms for step in steps if step.event in _CALLS and step.at_ms]
    for step in steps:
        if step.at_ms is None:
            continue
        when, by = step.at_ms, f", {step.worker}" if step.worker else ""
        if step.event in ("handled", "not handled"):
            began = when - (step.took_ms or 0)
            bars += [Bar("waits", at, max(at, began), "waited"), Bar("runs", began, when, f"ran{by} for")]
            points.append(Point("good" if step.event == "handled" else "bad", when, step.event))
            at, is_done = when, step.event == "handled"
        elif step.event == "failed":
            if not any(abs(when - each) <= _SAME_MS for each in traced):
                bars.append(Bar("either", at, max(at, when), "waited and ran for"))
            points.append(Point("bad", when, f"{step.detail}{by}"))
            at = max(at, when)
        elif step.until_ms is not None:
            kind, text = (
                ("retry", "paused before the retry for") if step.event == "delayed" else ("sleeps", f"{step.event} for")
            )
            begin = at if step.event == "delayed" else when
            bars.append(Bar(kind, min(begin, step.until_ms), min(step.until_ms, max(now_ms, begin)), text))
            at = max(at, min(step.until_ms, now_ms))
        elif step.event in ("retry stored", "woken"):
            if bars and bars[-1].kind in ("retry", "sleeps"):  # it was due a moment ago
                bars[-1] = bars[-1]._replace(end_ms=max(when, bars[-1].begin_ms))
            elif when > at:
                bars.append(Bar("retry", at, when, "came back after"))
            at = max(at, when)
        elif step.event in ("step", "signal", "time is up"):
            if step.event == "step":
                bars.append(Bar("step", min(at, when), when, f"step {step.detail.partition(',')[0]} within"))
            points.append(Point("good", when, f"{step.event} {step.detail}"))
            at = max(at, when)
        elif step.event == "dead letter":
            points.append(Point("bad", when, "dead letter"))
            at, is_done = max(at, when), True
    bars += _now(answer, steps, at, now_ms) if not is_done else []
    return Lane(answer, tuple(bar for bar in bars if bar.end_ms > bar.begin_ms or bar.kind == "runs"), tuple(points))


def _now(answer: Answer, steps: list[Step], at: int, now_ms: int) -> Iterator[Bar]:
    current = next((step for step in reversed(steps) if step.standing == answer.standing), None)
    if answer.standing in ("runs", "hangs") and current is not None:
        began = now_ms - (current.took_ms or 0)
        yield Bar("waits", at, max(at, began), "waited")
        by = f" in {current.worker}" if current.worker else ""
        yield Bar(answer.standing, began, now_ms, f"{answer.standing}{by} for")
    elif answer.standing == "waits":
        yield Bar("waits", at, now_ms, "waits for")
