"""Comparison: what ``mqadmin`` printed on two servers, line by line, without what differs from run to run."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

_ALIKE = (
    (r"^\s+at .*|^\s*\.\.\. \d+ more.*|^Caused by: |^.*SubCommandException: .*|^.*RuntimeException: .*failed$", ""),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?", "TIME"),
    (r"\b[0-9A-F]{32,56}\b", "ID"),
    (r"\b\d{13}\b", "MS"),
    (r"[\w.-]+@\d+(#\w+)*", "CLIENT"),
    (r"(\d{1,3}\.){3}\d{1,3}:\d+", "ADDRESS"),
    (r"\d+ms\b", "Nms"),
    (r"__CRC32#=\d+, ", ""),  # which makes records longer
    (r"(CommitLog Offset: +|storeSize=|commitLogOffset=|physicOffset=|physicSize=)\d+", r"\1N"),
    (r"\b\d+\.\d+\b", "N.N"),
    (r"\b(true|false) +\d+$", r"\1 N"),  # how long a send took
    (r"^(See|For more information).*http.*", ""),
    (r"\s+", " "),
)
"""Patterns that are replaced, in this order. Of an exception only its own text stays."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a line is printed on one server only: patterns of commands and lines, a sentence, and for which release."""

    command: str
    line: str
    sentence: str
    release: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """A line that only one of two servers let a command print."""

    command: str
    server: str
    line: str

    def __str__(self) -> str:
        return f"{self.command}: only {self.server}: {self.line}"


def differences(ours: dict[str, str], theirs: dict[str, str]) -> list[Difference]:
    """Return what only one server let the commands print. The order of lines does not matter: Java's maps choose it."""
    found = []
    for command in ours.keys() | theirs.keys():
        here, there = (Counter(lines(printed.get(command, "was not given"))) for printed in (ours, theirs))
        found += [Difference(command, "ours", line) for line in (here - there).elements()]
        found += [Difference(command, "theirs", line) for line in (there - here).elements()]
    return sorted(found, key=str)


def lines(printed: str) -> list[str]:
    """Return the lines of a text without what differs from run to run, and without empty ones."""
    found = []
    for line in printed.splitlines():
        for pattern, stand_in in _ALIKE:
            line = re.sub(pattern, stand_in, line)  # noqa: PLW2901
        if line.strip():
            found.append(line.strip())
    return found


def reason_of(difference: Difference, release: str, reasons: tuple[Reason, ...]) -> Reason | None:
    """Return the first reason that explains a difference between our server and a release; None without one."""
    for reason in reasons:
        if (
            reason.release in release
            and re.search(reason.command, difference.command)
            and re.search(reason.line, difference.line)
        ):
            return reason
    return None
