"""What a crash test asks of its child process: the scenario, its size, and where the child dies."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, cast

from rmqclient.store import crash_points
from rmqclient.store.crash_points import CrashPoint, arm


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one child is to do."""

    scenario: str
    root: str
    notes: str
    """File for what has returned."""

    point: str = ""
    """Name of the crash point to die at; empty for none."""

    survive: int = 0
    """How often to pass it first."""

    signal_number: int = signal.SIGKILL
    kill_at_line: int = 0
    """Die at the so many-th line of the store's Python that is reached for the first time; 0 for none."""

    rounds: int = 0
    """How often to open and close; 0 for without end."""

    batch: int = 1
    """Messages of one append; offsets of one acknowledgement."""

    body_bytes: int = 60
    pattern: str = "in order"
    """In which order to acknowledge, a key of ``PATTERNS``."""

    target: int = 0
    """Queue offset to seek to, or to be the oldest one."""

    def text(self) -> str:
        """Return the order as one line."""
        return json.dumps(asdict(self))

    def arm(self) -> None:
        """From now on, die at the point."""
        if self.point:
            arm(CrashPoint[self.point], passes=self.survive, signal_number=self.signal_number)
        if self.kill_at_line:
            die_at_line(self.kill_at_line)


Note = Callable[[object], None]
TraceFunction = Callable[[FrameType, str, object], object]


def die_at_line(number: int) -> None:
    """Kill this process when its main thread reaches the so many-th line of the store for the first time."""
    package = str(Path(crash_points.__file__).parent)
    seen: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        if not frame.f_code.co_filename.startswith(package):
            return None
        if event == "line":
            seen.add((frame.f_code.co_filename, frame.f_lineno))
            if len(seen) == number:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(cast("Any", trace))  # typeshed asks for a return of its own protocol
