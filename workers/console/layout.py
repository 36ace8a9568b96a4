"""Layout: rows as a table for a person, in the columns that a terminal has.

Each row is one line, but for a last column of words, which is broken between them. A name that is too long has an
ellipsis in its middle. An empty column is left out if space is short.
Ages and times are written as people say them; programs get milliseconds by ``-o``.
"""

from __future__ import annotations

import datetime
import json
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

_GAP = 2
_LEAST = 6
"""Columns that a name keeps."""
_LEAST_WORDS = 20
"""Columns that a last column of words keeps."""
_LABELS = {"given_up": "failed_at"}
"""What people read in place of a field, whose name is that of the row for good."""
_UNITS = {"_ms": 0.001, "_s": 1.0}


class _Column(NamedTuple):
    head: list[str]
    """Its words, a line each."""
    cells: list[str]
    is_numeric: bool

    @property
    def width(self) -> int:
        return max(map(width_of, [*self.head, *self.cells]))

    @property
    def is_empty(self) -> bool:
        return all(cell == "-" for cell in self.cells)

    def least(self, *, is_last: bool) -> int:
        """Return the columns that it needs: numbers are whole, names keep their ends, and a last one has words."""
        if self.is_numeric:
            return self.width
        has_words = is_last and any(" " in cell for cell in self.cells)
        own = min(self.width, _LEAST_WORDS if has_words else _LEAST)
        return max(own, *map(width_of, self.head))


def table(rows: Sequence[Mapping[str, Any]], width: int | None) -> tuple[list[str], list[str]]:
    """Return the lines of the head and those of the rows, of at most ``width`` columns; None does not limit them."""
    found = [_column(name, [row.get(name) for row in rows]) for name in rows[0]]
    if width is not None and _total(each.width for each in found) > width:
        found = [each for each in found if not each.is_empty] or found
    widths = _fitted(found, width)
    if width is not None and _total(widths) > width:
        return [], _records(found, width)
    height = max(len(each.head) for each in found)
    heads = [_lowered(each.head, height) for each in found]
    head = [_line(found, widths, [each[number] for each in heads]) for number in range(height)]
    lines = [line for number in range(len(rows)) for line in _row(found, widths, number)]
    return head, lines


def width_of(text: str) -> int:
    """Return how many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )


def shortened(text: str, width: int) -> str:
    """Return a text of at most ``width`` columns: a name keeps both its ends, words keep their beginning."""
    if width_of(text) <= width:
        return text
    ending = "" if " " in text else _taken(reversed(text), (width - 1) // 2)[::-1]
    return f"{_taken(text, width - 1 - width_of(ending))}…{ending}"


def printable(text: str) -> str:
    """Return text that cannot drive a terminal: control characters become escapes."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode("ascii")
        for each in text
    )


def label(name: str) -> str:
    """Return the words for a field of a row."""
    return _LABELS.get(name, name).replace("_", " ")


def local_time(milliseconds: int) -> str:
    """Return a time in ms since 1970 as a person of this time zone reads it; a number, if no calendar has it.

    A sender of another language writes what it likes as its time.
    """
    try:
        return _local(milliseconds).isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms since 1970"


def local_second(milliseconds: int) -> str:
    """Return the same to the second, and without the time zone."""
    return f"{_local(milliseconds):%Y-%m-%d %H:%M:%S}"


def _local(milliseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).astimezone()


def _column(name: str, values: list[Any]) -> _Column:
    is_numeric = all(isinstance(value, int | float | None) for value in values)
    if is_numeric and name.endswith("_timestamp"):
        return _Column(label(name.removesuffix("_timestamp")).split(), [_moment(each) for each in values], False)
    unit = next((unit for unit in _UNITS if name.endswith(unit)), None)
    if is_numeric and unit is not None:
        name, values = name.removesuffix(unit), [_age(each, _UNITS[unit]) for each in values]
    return _Column(label(name).split(), [_cell(value) for value in values], is_numeric)


def _age(value: float | None, unit: float) -> str | None:
    from rmqclient.health.words import age  # noqa: PLC0415 - only where there is an age

    return None if value is None else age(value * unit)


def _moment(value: int | None) -> str:
    return "-" if value is None else local_time(value)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return printable(", ".join(value))
    return printable(json.dumps(value, ensure_ascii=False))


def _total(widths: Iterable[int]) -> int:
    found = list(widths)
    return sum(found) + _GAP * (len(found) - 1)


def _fitted(columns: list[_Column], width: int | None) -> list[int]:
    """Return the widths of the columns, the widest texts made narrower until the line fits, or none can be."""
    widths = [each.width for each in columns]
    if width is None:
        return widths
    least = [each.least(is_last=each is columns[-1]) for each in columns]
    while _total(widths) > width:
        wide = [number for number, each in enumerate(widths) if each > least[number]]
        if not wide:
            break
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _row(columns: list[_Column], widths: list[int], number: int) -> list[str]:
    cells = [each.cells[number] for each in columns]
    *others, last = cells
    if " " not in last or width_of(last) <= widths[-1]:
        return [_line(columns, widths, cells)]
    lines = textwrap.wrap(last, widths[-1], break_on_hyphens=False, break_long_words=False)
    broken = [shortened(each, widths[-1]) for each in lines]
    first = [_line(columns, widths, [*others, broken[0]])]
    return first + [_line(columns, widths, ["" for _ in others] + [each]) for each in broken[1:]]


def _line(columns: list[_Column], widths: list[int], cells: list[str]) -> str:
    shown = []
    for column, width, cell in zip(columns, widths, cells, strict=True):
        text = shortened(cell, width)
        space = " " * (width - width_of(text))
        shown.append(space + text if column.is_numeric else text + space)
    return (" " * _GAP).join(shown).rstrip()


def _lowered(head: list[str], height: int) -> list[str]:
    return [""] * (height - len(head)) + head


def _records(columns: list[_Column], width: int) -> list[str]:
    """Return each row as lines of a name and a value, for rows that no line has space for."""
    names = [" ".join(each.head) for each in columns]
    indent = max(map(width_of, names)) + _GAP
    lines: list[str] = []
    for number in range(len(columns[0].cells)):
        lines += [""] if lines else []
        for name, column in zip(names, columns, strict=True):
            lines.append(f"{name:<{indent}}{shortened(column.cells[number], max(1, width - indent))}")
    return lines


def _taken(text: Iterable[str], width: int) -> str:
    """Return the beginning of a text that fits."""
    taken, used = "", 0
    for each in text:
        used += width_of(each)
        if used > width:
            break
        taken += each
    return taken
