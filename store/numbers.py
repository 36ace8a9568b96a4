"""Numbers: which ones an argument or a setting takes. A mistake is refused where it is made, and not where it hurts.

``True`` is no number here, and a number is no switch: Python would take either for the other one.
"""

from __future__ import annotations

from typing import Final

MOST_INT: Final = 2**31 - 1
"""The largest whole number of a setting, as of a Java ``int``."""

MOST_BYTES: Final = 2**63 - 1
"""The largest number of bytes, as of a Java ``long``."""

MOST_MS: Final = 3_653 * 86_400_000
"""Ten years: a longer time is a mistake in its unit."""


def whole(name: str, value: object, least: int = 0, most: int = MOST_INT) -> int:
    """Return a whole number from ``least`` to ``most``; ``name`` is the argument that an error names.

    Raises TypeError for anything except an int, and ValueError for one that is too small or too large.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r}: must be a whole number from {least:,} to {most:,}")
    if not least <= value <= most:
        raise ValueError(f"{name}={value}: must be from {least:,} to {most:,}")
    return value


def positive_s(name: str, value: object, most: float = MOST_MS / 1000) -> float:
    """Return seconds above 0, up to ``most``. Raises TypeError and ValueError as :func:`whole`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r}: must be a number of seconds above 0, up to {most:,.15g}")
    if not 0 < value <= most:
        raise ValueError(f"{name}={value}: must be above 0 and at most {most:,.15g} s")
    return value


def fraction(name: str, value: object) -> float:
    """Return a number from 0 to below 1. Raises TypeError and ValueError as :func:`whole`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r}: must be a number of at least 0 and below 1")
    if not 0 <= value < 1:
        raise ValueError(f"{name}={value}: must be at least 0 and below 1")
    return value


def switch(name: str, value: object) -> bool:
    """Return True or False. Raises TypeError for anything else, of which ``"no"`` would mean yes."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: must be True or False")
    return value


def check_kind(name: str, given: object, kind: type) -> None:
    """Check settings that are an object of their own, or None. Raises TypeError for anything else."""
    if given is not None and not isinstance(given, kind):
        raise TypeError(f"{name}={given!r}: give {kind.__name__}(...), or None")


def check_whole(settings: object, *names: str, least: int = 1, most: int = MOST_INT) -> None:
    """Check some settings of an object, as :func:`whole` does."""
    for name in names:
        whole(name, getattr(settings, name), least, most)


def check_switches(settings: object, *names: str) -> None:
    """Check some settings of an object, as :func:`switch` does."""
    for name in names:
        switch(name, getattr(settings, name))
