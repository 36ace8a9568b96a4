"""Terminal: what standard output shows to: how wide it is, and whether it understands escape codes.

This module imports nothing that takes long: ``rmq check`` uses it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def columns() -> int | None:
    """Return how many columns a line has; None off a terminal, where nothing is cut or broken."""
    if not sys.stdout.isatty():
        return None
    return size().columns


def size() -> os.terminal_size:
    """Return the columns and lines of the terminal; 80 and 24 if it does not say."""
    found = _size()
    return os.terminal_size((_of_variable("COLUMNS") or found.columns, _of_variable("LINES") or found.lines))


def is_addressable() -> bool:
    """Tell whether the cursor can be moved: on a terminal that is not ``TERM=dumb``."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def has_colours() -> bool:
    """Tell whether colours and bold text are wanted and understood: not with ``NO_COLOR``."""
    return is_addressable() and not os.environ.get("NO_COLOR")


def draw(lines: Iterable[str]) -> None:
    """Draw lines over those that the terminal shows; it must be addressable."""
    text = f"{_CLEAR_LINE}\r\n".join(lines)
    sys.stdout.write(f"{_HOME}{text}{_CLEAR_LINE}{_CLEAR_BELOW}")
    sys.stdout.flush()


def _size() -> os.terminal_size:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return os.terminal_size((80, 24))
    return os.terminal_size((size.columns or 80, size.lines or 24))


def _of_variable(name: str) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else 0
