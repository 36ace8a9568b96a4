"""Frames: what a stored traceback says, frame by frame, and which of them are the application's own."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

_HEAD = re.compile(r'\s*File "(?P<file>.+)", line (?P<line>[0-9]+)(?:, in (?P<function>.+))?$')
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python[0-9.]+/|^<")
_PACKAGE = f"{Path(__file__).parents[1]}/"
_STANDARD = f"{sysconfig.get_path('stdlib')}/"


class Frame(NamedTuple):
    """One frame of a traceback."""

    file: str
    line: int
    function: str
    source: str
    """The line of the source, and what stood below it; may be empty."""

    @property
    def is_own(self) -> bool:
        """Whether it is the application's, by its file: neither of an installed package, nor of Python, nor of ours."""
        return not self.file.startswith((_PACKAGE, _STANDARD)) and not _LIBRARY.search(self.file)

    @property
    def place(self) -> str:
        """The file, with its folder, and the function. Without the line, which moves with each release."""
        return f"{'/'.join(self.file.split('/')[-2:])} in {self.function}"


def frames_of(trace: str) -> list[Frame]:
    """Return the frames of a traceback, outermost first; a first one that was cut is left out."""
    return list(_frames(trace.splitlines()))


def runs_of(trace: str) -> list[tuple[bool, list[Frame]]]:
    """Return the frames of a traceback, those that stand together and are the application's, or are not, together."""
    return [(is_own, list(some)) for is_own, some in groupby(frames_of(trace), key=lambda each: each.is_own)]


@lru_cache(512)  # few places raise, again and again
def raised_in(trace: str) -> str:
    """Return the place of the innermost frame that is the application's, or else of the innermost; empty if none is."""
    frames = frames_of(trace)
    return next((each.place for each in reversed(frames) if each.is_own), frames[-1].place if frames else "")


def _frames(lines: list[str]) -> Iterator[Frame]:
    head: re.Match[str] | None = None
    source: list[str] = []
    for line in [*lines, None]:
        begun = None if line is None else _HEAD.match(line)
        if head is not None and (begun or line is None):
            yield Frame(head["file"], int(head["line"]), head["function"] or "?", "\n".join(source))
        if begun:
            head, source = begun, []
        elif line is not None:
            source.append(line.removeprefix("    "))
