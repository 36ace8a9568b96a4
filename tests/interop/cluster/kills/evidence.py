"""The evidence: what every process wrote down, and what the place holds in the end, as rows in the order of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.checker.history import Kind, read

NEVER = 1 << 63


class Send(NamedTuple):
    """A send that returned or raised."""

    subject: int
    begun: int
    ended: int
    stored: bool
    """It returned; otherwise nobody knows whether the message is stored."""
    queue: int
    offset: int


class Call(NamedTuple):
    """One call of a handler. Times are in ns of CLOCK_BOOTTIME."""

    begun: int
    ended: int
    """``NEVER`` for one that was cut off."""
    subject: int
    queue: int
    offset: int
    process: int
    attempt: int


class Fault(NamedTuple):
    """Something that was killed."""

    what: str
    """``worker`` or ``broker``."""
    at: int
    """Just before."""
    over: int
    """When its successor was ready."""
    name: str = ""
    """Of the broker of a cluster; each has its own offsets."""


@dataclass(slots=True)
class Evidence:
    """All that the rules are computed on."""

    sends: list[Send] = field(default_factory=list)
    calls: dict[int, list[Call]] = field(default_factory=lambda: defaultdict(list))
    """By the number of the group, in the order of their begin."""
    faults: list[Fault] = field(default_factory=list)
    stored: dict[tuple[int, int], int] = field(default_factory=dict)
    """The message at each (queue, offset), by the final read."""
    ends: dict[int, int] = field(default_factory=dict)
    """Of each queue, by the final read."""


def collect(histories: Path, faults: Iterable[Fault], stored: dict[tuple[int, int], int]) -> Evidence:
    """Read every history of a run."""
    evidence = Evidence(faults=sorted(faults, key=lambda fault: fault.at), stored=stored)
    for queue, offset in stored:
        evidence.ends[queue] = max(evidence.ends.get(queue, 0), offset + 1)
    for path in sorted(histories.iterdir(), key=lambda path: int(path.name)):
        _add(evidence, int(path.name), read(histories, int(path.name)))
    for calls in evidence.calls.values():
        calls.sort()
    return evidence


def _add(evidence: Evidence, process: int, records: Any) -> None:
    """Add what one process wrote. A process that still writes may show the end of a call without its begin."""
    begun: dict[tuple[int, int, int, int], Any] = {}
    sent_at = 0
    for record in records:
        kind, at, subject = int(record["kind"]), int(record["at"]), int(record["subject"])
        queue, offset, group = int(record["queue"]), int(record["offset"]), int(record["group"])
        thread = int(record["thread"])
        if kind == Kind.SEND:
            sent_at = at
        elif kind in (Kind.SENT, Kind.SEND_UNKNOWN):
            evidence.sends.append(Send(subject, sent_at, at, kind == Kind.SENT, queue, offset))
        elif kind == Kind.HANDLE:
            begun[group, queue, offset, thread] = (at, subject, int(record["attempt"]))
        elif kind == Kind.HANDLED and (found := begun.pop((group, queue, offset, thread), None)):
            started, subject, attempt = found
            evidence.calls[group].append(Call(started, at, subject, queue, offset, process, attempt))
    for (group, queue, offset, _), (started, subject, attempt) in begun.items():
        evidence.calls[group].append(Call(started, NEVER, subject, queue, offset, process, attempt))
