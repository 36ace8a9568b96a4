"""Plots: pictures of a result as plain SVG, with logarithmic axes, for light and dark pages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH = 860
_LABELS = 260
_VALUES = 90
_ROW = 22
_TOP = 40
_BOTTOM = 26

_STYLE = (
    "text{font:12px sans-serif;fill:#24292f}.t{font-weight:bold;font-size:14px}.b{font-weight:bold}"
    ".v,.l{fill:#57606a}.g{stroke:#d0d7de}"
    ".p{fill:#8c959f}.o{fill:#0969da}.w{stroke:#57606a}.d{fill:#fff;stroke:#57606a}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.v,.l{fill:#9198a1}.g{stroke:#30363d}.p{fill:#6e7681}"
    ".o{fill:#4493f8}.w{stroke:#9198a1}.d{fill:#0d1117;stroke:#9198a1}}"
)


@dataclass(frozen=True, slots=True)
class Mark:
    """One row of a picture. ``values`` go from left to right; bars have the lowest, the median and the highest."""

    label: str
    values: tuple[float, ...]
    shown: str
    """What stands at the right."""
    ours: bool
    group: str
    """Rows of one group stand together, below this line."""


def bars(title: str, marks: Sequence[Mark]) -> str:
    """Draw a bar to each median, with a line from the lowest to the highest."""
    return _picture(title, marks, _bar)


def ranges(title: str, marks: Sequence[Mark]) -> str:
    """Draw a line through all values of a row, with a point at each."""
    return _picture(title, marks, _range)


class _Axis:
    """Powers of ten from left to right."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        values = [value for mark in marks for value in mark.values if value > 0] or [1.0]
        self._low = math.floor(math.log10(min(values)))
        self._high = max(math.ceil(math.log10(max(values))), self._low + 1)

    def x(self, value: float) -> float:
        """Return where a value stands; what is not positive stands at the left end."""
        part = (math.log10(value) - self._low) / (self._high - self._low) if value > 0 else 0.0
        return _LABELS + part * (_WIDTH - _LABELS - _VALUES)

    @property
    def powers(self) -> Iterator[tuple[float, str]]:
        """All powers of ten, and how they are written."""
        for power in range(self._low, self._high + 1):
            yield self.x(10.0**power), _short(10.0**power)


def _picture(title: str, marks: Sequence[Mark], draw: object) -> str:
    assert callable(draw)
    groups = list(dict.fromkeys(mark.group for mark in marks))
    axis, end = _Axis(marks), _TOP + _ROW * (len(marks) + len(groups))
    parts = [f'<text class="t" x="0" y="16">{escape(title)}</text>']
    for x, text in axis.powers:
        parts.append(f'<line class="g" x1="{x:.0f}" x2="{x:.0f}" y1="{_TOP - 8}" y2="{end}"/>')
        parts.append(f'<text class="l" x="{x:.0f}" y="{end + 16}" text-anchor="middle">{text}</text>')
    middle = _TOP - _ROW // 2
    for number, mark in enumerate(marks):
        if number == 0 or mark.group != marks[number - 1].group:
            middle += _ROW
            parts.append(f'<text class="b" x="0" y="{middle + 4}">{escape(mark.group)}</text>')
        middle += _ROW
        parts.append(f'<text x="{_LABELS - 8}" y="{middle + 4}" text-anchor="end">{escape(mark.label)}</text>')
        parts += draw(axis, mark, middle)
        parts.append(f'<text class="v" x="{_WIDTH}" y="{middle + 4}" text-anchor="end">{escape(mark.shown)}</text>')
    height = end + _BOTTOM
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{_STYLE}</style>", *parts, "</svg>"]) + "\n"


def _bar(axis: _Axis, mark: Mark, middle: int) -> list[str]:
    low, median, high = mark.values
    width = max(axis.x(median) - _LABELS, 1.0)
    return [
        f'<rect class="{_kind(mark)}" x="{_LABELS}" y="{middle - 7}" width="{width:.1f}" height="14"/>',
        f'<line class="w" x1="{axis.x(low):.1f}" x2="{axis.x(high):.1f}" y1="{middle}" y2="{middle}"/>',
    ]


def _range(axis: _Axis, mark: Mark, middle: int) -> list[str]:
    places = [axis.x(value) for value in mark.values]
    points = [f'<circle class="{_kind(mark)}" cx="{x:.1f}" cy="{middle}" r="5"/>' for x in places]
    return [f'<line class="w" x1="{places[0]:.1f}" x2="{places[-1]:.1f}" y1="{middle}" y2="{middle}"/>', *points]


def _kind(mark: Mark) -> str:
    return "o" if mark.ours else "p"


def _short(value: float) -> str:
    for factor, prefix in ((1e6, " M"), (1e3, " k")):
        if value >= factor:
            return f"{value / factor:g}{prefix}"
    return f"{value:g}"
