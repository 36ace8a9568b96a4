"""Words: how numbers, ages and sizes are written."""

from __future__ import annotations

NOTHING = "\N{EN DASH}"
_UNITS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def count(number: float | None) -> str:
    """Return a number as people read it: ``1,234``, ``0.4``; a dash for None."""
    if number is None:
        return NOTHING
    if isinstance(number, float):
        return f"{number:,.1f}" if 0 < number < 10 else f"{number:,.0f}"
    return f"{number:,}"


def size(count_of_bytes: float) -> str:
    """Return bytes in units of 1024."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count_of_bytes < 1024:
            return f"{count_of_bytes:,.0f} {unit}" if unit == "bytes" else f"{count_of_bytes:,.1f} {unit}"
        count_of_bytes /= 1024
    return f"{count_of_bytes:,.1f} TiB"


def age(seconds: float | None) -> str:
    """Return an age with its two largest units: ``3 min 12 s``; a dash for None."""
    if seconds is None:
        return NOTHING
    if seconds < 60:
        return (
            f"{seconds * 1000:,.0f} ms" if seconds < 1 else f"{seconds:,.1f} s" if seconds < 10 else f"{seconds:,.0f} s"
        )
    for length, unit, shorter, shorter_unit in _UNITS:
        if seconds >= length:
            whole, rest = divmod(int(seconds), length)
            return f"{whole} {unit} {rest // shorter} {shorter_unit}"
    raise AssertionError(seconds)


def about(seconds: float) -> str:
    """Return an age with its largest unit: ``3 min``."""
    for length, unit, _, _ in _UNITS:
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"
