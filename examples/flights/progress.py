"""Progress: three counts with their rates, as bars on a terminal, and as a line each second in any other output."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from examples.flights.stage import Counts

_LINE_INTERVAL_S = 1.0
_RATE_WINDOW_S = 2.0


class Display(Protocol):
    """The display of the demonstration."""

    def show(self, counts: Counts) -> None:
        """Show the progress of the replay and of each group."""

    def say(self, text: str) -> None:
        """Print a line with the time."""


@contextmanager
def display(console: Console, total: int) -> Iterator[Display]:
    """Show progress while entered; the last counts are shown at the end."""
    if not console.is_terminal:
        lines = Lines(console)
        yield lines
        lines.end()
        return
    columns = (
        TextColumn("{task.description:>8}"),
        BarColumn(bar_width=None),
        TextColumn("{task.completed:>7,.0f}"),
        RateColumn(),
    )
    with Progress(*columns, console=console, speed_estimate_period=_RATE_WINDOW_S) as progress:
        yield Bars(progress, total)


class Bars:
    """One bar for each count."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._tasks: dict[str, TaskID] = {}
        self._begin = time.monotonic()

    def show(self, counts: Counts) -> None:
        """As :meth:`Display.show`."""
        for name, count in named(counts).items():
            if name not in self._tasks:
                self._tasks[name] = self._progress.add_task(name, total=self._total)
            self._progress.update(self._tasks[name], completed=count)

    def say(self, text: str) -> None:
        """As :meth:`Display.say`."""
        self._progress.console.print(_said(self._begin, text), highlight=False)


class Lines:
    """A line each second."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begin = self._shown_at = time.monotonic()
        self._shown: dict[str, int] = {}
        self._latest: dict[str, int] = {}

    def show(self, counts: Counts) -> None:
        """As :meth:`Display.show`."""
        self._latest = named(counts)
        if time.monotonic() - self._shown_at >= _LINE_INTERVAL_S:
            self.end()

    def say(self, text: str) -> None:
        """As :meth:`Display.say`."""
        self._console.print(_said(self._begin, text), highlight=False, soft_wrap=True)

    def end(self) -> None:
        """Print the latest counts, unless they were printed already."""
        if self._latest == self._shown:
            return
        now = time.monotonic()
        seconds = now - self._shown_at
        parts = [
            f"{name} {count:,} ({(count - self._shown.get(name, 0)) / seconds:,.0f}/s)"
            for name, count in self._latest.items()
        ]
        self.say("   ".join(parts))
        self._shown, self._shown_at = self._latest, now


class RateColumn(ProgressColumn):
    """Items per second over the last moments, then over the whole task."""

    def render(self, task: Task) -> Text:
        """Return the text of the column."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed or 0:>9,.0f}/s", style="progress.data.speed")


def named(counts: Counts) -> dict[str, int]:
    """Return the counts by the names under which they are shown."""
    return {"sent": counts.sent, **counts.acknowledged}


def _said(begin: float, text: str) -> str:
    return f"{time.monotonic() - begin:5.1f} s  {text}"
