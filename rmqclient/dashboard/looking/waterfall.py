"""Waterfall: the life of a message as bars over time, one lane for each group.

The store keeps when a message was stored, delayed, failed or given up, and when its durable steps ended; the message
trace, if it is on, keeps when each call began and ended. What neither tells is one bar for both, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqclient.admin.life import Step
from rmqclient.dashboard.looking.answers import Answer

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
    """Stands before the length, such as ``ran for``."""

    @property
    def seconds(self) -> float:
        """How long it is."""
        return max(0, self.end_ms - self.begin_ms) / 1000


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
    drawing = _Drawing(stored_ms, now_ms, [step.at_ms for step in steps if step.event in _CALLS and step.at_ms])
    for step in steps:
        if step.at_ms is not None:
            drawing.add(step, step.at_ms)
    drawing.end(answer.standing, steps)
    bars = (bar for bar in drawing.bars if bar.end_ms > bar.begin_ms or bar.kind == "runs")
    return Lane(answer, tuple(bars), tuple(drawing.points))


class _Drawing:
    """The bars of one group, made from its steps in the order of their times."""

    def __init__(self, stored_ms: int, now_ms: int, calls: list[int]) -> None:
        self.bars: list[Bar] = []
        self.points: list[Point] = []
        self._now_ms = now_ms
        self._calls = calls
        """When calls began or ended, as the trace says."""
        self._at = stored_ms
        """Up to when there are bars."""
        self._is_done = False

    def add(self, step: Step, when: int) -> None:
        """Draw what happened at a time."""
        if step.event in ("handled", "not handled"):
            self._called(step, when)
        elif step.event == "failed":
            self._failed(step, when)
        elif step.until_ms is not None:
            self._paused(step, when, step.until_ms)
        elif step.event in ("retry stored", "woken"):
            self._came_back(when)
        elif step.event in ("step", "signal", "time is up"):
            if step.event == "step":
                self._bar("step", min(self._at, when), when, f"step {step.detail.partition(',')[0]} within")
            self.points.append(Point("good", when, f"{step.event} {step.detail}"))
        elif step.event == "dead letter":
            self.points.append(Point("bad", when, "dead letter"))
            self._at, self._is_done = max(self._at, when), True

    def end(self, standing: str, steps: list[Step]) -> None:
        """Draw what is so now."""
        current = next((step for step in reversed(steps) if step.standing == standing), None)
        if self._is_done or current is None:
            return
        if standing in ("runs", "hangs"):
            began = self._now_ms - (current.took_ms or 0)
            self._bar("waits", self._at, max(self._at, began), "waited")
            by = f" in {current.worker}" if current.worker else ""
            self._bar(standing, began, self._now_ms, f"{standing}{by} for")
        elif standing == "waits":
            self._bar("waits", self._at, self._now_ms, "waits for")

    def _bar(self, kind: str, begin_ms: int, end_ms: int, text: str) -> None:
        self.bars.append(Bar(kind, begin_ms, end_ms, text))
        self._at = max(self._at, end_ms)

    def _called(self, step: Step, when: int) -> None:
        began = when - (step.took_ms or 0)
        self._bar("waits", self._at, max(self._at, began), "waited")
        self._bar("runs", began, when, "ran for")
        self.points.append(Point("good" if step.event == "handled" else "bad", when, step.event))
        self._is_done = step.event == "handled"

    def _failed(self, step: Step, when: int) -> None:
        if not any(abs(when - each) <= _SAME_MS for each in self._calls):
            self._bar("either", self._at, max(self._at, when), "waited and ran for")
        self.points.append(Point("bad", when, f"{step.detail}{f', {step.worker}' if step.worker else ''}"))
        self._at = max(self._at, when)

    def _paused(self, step: Step, when: int, until_ms: int) -> None:
        is_retry = step.event == "delayed"
        begin, text = (self._at, "paused before the retry for") if is_retry else (when, f"{step.event} for")
        end = min(until_ms, max(self._now_ms, begin))
        self._bar("retry" if is_retry else "sleeps", min(begin, end), end, text)

    def _came_back(self, when: int) -> None:
        if self.bars and self.bars[-1].kind in ("retry", "sleeps"):  # it was due a moment ago
            self.bars[-1] = self.bars[-1]._replace(end_ms=max(when, self.bars[-1].begin_ms))
        elif when > self._at:
            self._bar("retry", self._at, when, "came back after")
        self._at = max(self._at, when)
