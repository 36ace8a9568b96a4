"""Counters: refusals by kind, counted and logged; at most one line a second for each kind."""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_QUIET_S: Final = 1.0


class Refusal(enum.Enum):
    """What was refused. The value is its name in the log and the counters."""

    FRAME = "bytes that are not a frame"
    CONNECTION = "connections over the limit"
    ADDRESS = "connections of one address over the limit"
    TLS = "connections without or with TLS, or with another one"
    SLOW_READER = "clients that do not read their answers"
    HALF_FRAME = "clients that stopped within a frame"
    IDLE = "idle connections"
    BUSY = "requests over the bytes in flight"
    ANSWER = "answers that cannot be sent"
    HELD_PULL = "held pulls over the limit"
    AWAITED = "awaited topics over the limits"
    HEARTBEAT = "heartbeats over the limits"
    COMMIT = "commits of offsets"
    MADE = "groups and topics over what one address may make"
    ACCESS = "requests without permission"
    READ_ONLY = "requests that would write into a read-only server"


_SILENT: Final = frozenset({Refusal.IDLE})
"""Common events, which are counted but logged only at level DEBUG."""


class Counters:
    """Counts refusals. Safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(Refusal, 0)
        self._logged: dict[Refusal, tuple[float, int]] = {}

    def refuse(self, kind: Refusal, text: str) -> None:
        """Count a refusal, and log ``text``, the client and the limit, unless this kind was just logged."""
        with self._lock:
            self._counts[kind] += 1
            now, count = self._clock(), self._counts[kind]
            at, logged = self._logged.get(kind, (now - _QUIET_S, 0))
            if now - at < _QUIET_S:
                return
            self._logged[kind] = now, count
        level = logging.DEBUG if kind in _SILENT else logging.WARNING
        more = f" (and {count - logged - 1:,} more {kind.value} before)" if count - logged > 1 else ""
        _log.log(level, "%s%s", text, more)

    def count(self, kind: Refusal) -> int:
        """Return the number of refusals of a kind since the start."""
        return self._counts[kind]

    def table(self) -> dict[str, int]:
        """Return all counts by the lower-case name of their kind."""
        return {kind.name.lower(): count for kind, count in self._counts.items()}
