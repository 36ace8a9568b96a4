"""Chart of dead letters: their number over time by exception, and the handlers that they come from."""

# ruff: noqa: PLC0415 - matplotlib is optional

from __future__ import annotations

import datetime
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqclient.store.errors import NotInstalled

_MOST_ERRORS = 7
_MOST_HANDLERS = 10
_OTHERS = "others"
_FEWEST_WINDOWS = 12
"""Least number of windows on the time axis, so that a single window is drawn as a narrow bar."""
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#bbbbbb")
"""Colours that colour-blind people can tell apart, too [Paul Tol's bright scheme]; the last is for all other errors."""


@dataclass(frozen=True)
class Failing:
    """Dead letters of one kind in one window of time."""

    start_ms: int
    end_ms: int
    group: str
    topic: str
    handler: str | None
    error: str | None
    messages: int
    attempts: int
    """Sum of the delivery attempts of these dead letters."""

    first_ms: int
    last_ms: int
    example: str
    """Text of the last exception of one of these dead letters."""

    example_id: str


def draw(failing: list[Failing], path: Path) -> None:
    """Write a PNG file. Raises NotInstalled if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise NotInstalled("matplotlib is not installed: pip install 'rmqclient[chart]'") from None

    figure = Figure(figsize=(11, 7.5), layout="constrained")
    over_time, by_handler = figure.subplots(2, 1, height_ratios=(3, 2))
    errors = _most([(each.error or "unknown", each.messages) for each in failing], _MOST_ERRORS)
    colours = dict(zip(errors, _COLOURS, strict=False)) | {_OTHERS: _COLOURS[-1]}
    total = sum(each.messages for each in failing)
    groups = sorted({each.group for each in failing})
    named = f" of {', '.join(groups)}" if 0 < len(groups) <= 4 else ""
    figure.suptitle(f"{total:,} dead letters{named}", x=0.01, ha="left", fontweight="bold")
    _draw_over_time(over_time, failing, colours)
    _draw_by_handler(by_handler, failing, colours)
    if failing:
        figure.legend(loc="outside lower left", ncols=4, frameon=False, title="exception", alignment="left")
    figure.savefig(path, format="png", dpi=110)


def _draw_over_time(axes: Any, failing: list[Failing], colours: dict[str, str]) -> None:
    """Draw one bar for each window, divided by exception."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import MaxNLocator

    counts: dict[str, Counter[int]] = {error: Counter() for error in colours}
    for each in failing:
        counts[_known(each.error, colours)][each.start_ms] += each.messages
    starts = sorted({each.start_ms for each in failing})
    times = [datetime.datetime.fromtimestamp(start / 1000, datetime.UTC) for start in starts]
    width = datetime.timedelta(milliseconds=min((each.end_ms - each.start_ms for each in failing), default=1))
    below = [0] * len(starts)
    for error, counted in counts.items():
        heights = [counted[start] for start in starts]
        if any(heights):
            axes.bar(times, heights, width * 0.92, below, align="edge", color=colours[error], label=error)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    if times:
        missing = max(0.0, _FEWEST_WINDOWS - (times[-1] - times[0]) / width) / 2
        axes.set_xlim(times[0] - (missing + 0.5) * width, times[-1] + (missing + 1.5) * width)
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=datetime.UTC))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("dead letters")
    axes.set_title(f"by exception and time, in windows of {_shown(width)} (UTC)", loc="left", fontsize="medium")
    _plain(axes, "y")


def _draw_by_handler(axes: Any, failing: list[Failing], colours: dict[str, str]) -> None:
    """Draw one bar for each handler, divided by exception."""
    from matplotlib.ticker import MaxNLocator

    names = _most([(_handler(each), each.messages) for each in failing], _MOST_HANDLERS)
    if len({_handler(each) for each in failing}) > len(names):
        names.append(_OTHERS)
    left = [0] * len(names)
    for error, colour in colours.items():
        counted: Counter[str] = Counter()
        for each in failing:
            if _known(each.error, colours) == error:
                counted[_handler(each) if _handler(each) in names else _OTHERS] += each.messages
        lengths = [counted[name] for name in names]
        axes.barh(names, lengths, 0.7, left, color=colour)
        left = [before + length for before, length in zip(left, lengths, strict=True)]
    for number, length in enumerate(left):
        axes.annotate(f"{length:,}", (length, number), (4, 0), textcoords="offset points", va="center")
    axes.set_ylim(max(len(names), 4) - 0.5, -0.5)
    axes.set_xlim(0, max(left, default=1) * 1.08)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("dead letters")
    axes.set_title("by group, topic and handler", loc="left", fontsize="medium")
    _plain(axes, "x")


def _shown(width: datetime.timedelta) -> str:
    seconds = width.total_seconds()
    for name, unit in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s"


def _plain(axes: Any, grid: str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)


def _handler(each: Failing) -> str:
    return f"{each.group} / {each.topic}" + (f" / {each.handler}" if each.handler else "")


def _known(error: str | None, colours: dict[str, str]) -> str:
    name = error or "unknown"
    return name if name in colours else _OTHERS


def _most(counted: list[tuple[str, int]], most: int) -> list[str]:
    """Return the names with the highest sums, highest first."""
    sums: Counter[str] = Counter()
    for name, count in counted:
        sums[name] += count
    return [name for name, _ in sums.most_common(most)]
