"""Rows: what stands in one slot of a table of the runtime file, as a value that no later write changes.

``rmq check`` reads them without the kernel, so this module imports neither the kernel nor ``pathlib``.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from typing import NamedTuple, Self


class MemberInfo(NamedTuple):
    """One consumer of one topic in one group; a producer of transactions is a member of the topic of half messages."""

    slot: int
    incarnation: int
    group: str
    topic: str
    client_id: str
    pid: int
    subscription: str
    wake_slot: int = -1
    """Member slot on whose word its consumer sleeps; -1 where nobody tells."""
    heartbeat_age_ms: float | None = None
    """When it was looked at; None where nobody tells."""

    @property
    def key(self) -> tuple[int, int]:
        """The ``owner`` and ``owner_incarnation`` of the queues that the member owns."""
        return self.slot + 1, self.incarnation


class Strained(NamedTuple):
    """Members of one topic, by client id, whose threads are all kept by long calls while messages wait."""

    busy: frozenset[str]
    helpers: tuple[str, ...]
    """Members that can have the queues of the busy ones meanwhile, sorted; empty if nobody is busy."""


NOT_STRAINED = Strained(frozenset(), ())


class WorkerState(enum.IntEnum):
    """Alive is not ready: a worker is ready when its handlers have joined their groups."""

    FREE = 0
    STARTING = 1
    READY = 2
    DRAINING = 3
    LOSING = 4
    """A thread of the library ended by an error, so the process ends and is replaced."""
    OVERDUE = 5
    """Ready, and a schedule of it has a tick that passed a while ago and that no process has sent."""


class WorkerStatus(NamedTuple):
    """One worker as its supervisor sees it."""

    slot: int
    pid: int
    supervisor_pid: int
    state: WorkerState
    beat_age_ms: float | None
    """None before the first heartbeat."""
    message_age_ms: float | None
    """Age of the handler call that has run longest; None when no handler runs."""
    in_flight: int
    handled: int
    """By this process."""
    failed: int
    """By this process."""
    name: str = ""
    """Such as ``worker-3``: the same for the worker that replaces it."""
    restarts: int = 0
    """How often the worker of this name was started again by its supervisor."""
    handled_before: int = 0
    """On a cluster, by its forerunners under this supervisor; a store counts by group."""
    failed_before: int = 0
    """As ``handled_before``."""
    is_here: bool = True
    """Whether its process ids mean the same in this process: it may run in another PID namespace."""

    @classmethod
    def of(cls, slot: int, words: Mapping[str, int], name: str, *, now: int, is_here: bool) -> Self:
        """Return the worker of a slot; ``now`` and the times among its words are CLOCK_BOOTTIME in ns, 0 for never."""
        beat_age_ms, message_age_ms = (
            (now - words[time]) / 1e6 if words[time] else None for time in ("beat", "message_started")
        )
        return cls(
            slot,
            words["pid"],
            words["supervisor_pid"],
            WorkerState(words["state"]),
            beat_age_ms,
            message_age_ms,
            words["in_flight"],
            words["handled"],
            words["failed"],
            name,
            words["restarts"],
            words.get("handled_before", 0),
            words.get("failed_before", 0),
            is_here,
        )

    @property
    def resident_bytes(self) -> int | None:
        """Memory of the process now; None when it has ended, or runs in another container."""
        if not self.is_here:
            return None
        try:
            with open(f"/proc/{self.pid}/statm", encoding="ascii") as file:
                pages = int(file.read().split()[1])
        except (OSError, IndexError, ValueError):
            return None
        return pages * os.sysconf("SC_PAGE_SIZE")


class Histogram(NamedTuple):
    """Times, by class. A class has an upper bound of ``layout.HANDLING_BOUNDS_MS``; the last one has none."""

    counts: tuple[int, ...]
    """Of each class alone."""
    seconds: float
    """Sum of the times."""

    @property
    def total(self) -> int:
        """How many times were measured."""
        return sum(self.counts)


class Handling(NamedTuple):
    """How long the messages of one handler took, once for each message."""

    group: str
    topic: str
    """Of the handler; the messages of the group's retry topic that it handled are counted here, too."""
    handled: Histogram
    """Calls that returned. All messages of a call have its duration."""
    failed: Histogram
    """Calls that raised."""
    waited: Histogram
    """From the store time of the record until the handler was called."""
