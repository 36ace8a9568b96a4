"""Suspects: messages that were running when a process died. Each runs while nothing else runs in its process.

One of the messages that run side by side may have killed their process, and nobody knows which one. So a suspect waits
until what runs in its process has ended, and nothing begins beside it: if the process dies again, it was the suspect.
Suspects run one after the other. A suspect waits for others, and others for a suspect, for ten seconds at most.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol
from weakref import WeakSet

from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.failures.failure import DEATHS, history
from rmqclient.message import ReceivedMessage

ALONE_S: Final = 10.0
_LOOK_S: Final = 0.01
_QUIET_LOOKS: Final = 2
"""So many looks in a row must find nothing running: a thread may have taken a batch that it has not begun."""


def is_suspect(queue: ProcessQueue, message: ReceivedMessage) -> bool:
    """Tell whether a process died with a message, or with the message that it is the retry of."""
    if message.queue_offset in queue.deaths:
        return True
    return queue.is_retry and any(entry.get("error") in DEATHS for entry in history(message.properties))


class Neighbours(Protocol):
    """The threads of one handler in the process."""

    @property
    def running(self) -> int:
        """Messages whose handler runs now."""

    def stand_aside(self, until: float) -> None:
        """Take nothing until this time of ``time.monotonic``; 0 ends that."""


class Suspects:
    """The gate of one process, through which its suspects go one after the other. Safe for threads."""

    def __init__(self) -> None:
        self._neighbours: WeakSet[Neighbours] = WeakSet()  # each has this gate itself
        self._gate = threading.Condition()
        self._waiting = 0
        self._until = 0.0
        """When the time of the present suspect is up; 0 without one."""

    def add(self, neighbours: Neighbours) -> None:
        """Let these threads stand aside, too; before they start."""
        self._neighbours.add(neighbours)

    @contextmanager
    def alone(self, is_over: Callable[[], bool]) -> Iterator[None]:
        """Let nothing run in the process beside what runs inside; waits for that, unless ``is_over``."""
        with self._gate:
            self._waiting += 1
            while not is_over() and self._until > time.monotonic():
                self._gate.wait(_LOOK_S)
            self._waiting -= 1
            self._close()
            self._wait_for_quiet(is_over)
            until = self._close()
        try:
            yield
        finally:
            with self._gate:
                if self._until == until:  # else its time was up, and another suspect has the gate
                    self._open()

    def _close(self) -> float:
        self._until = until = time.monotonic() + ALONE_S
        for each in self._neighbours:
            each.stand_aside(until)
        return until

    def _open(self) -> None:
        self._until = 0.0
        if not self._waiting:  # else the next suspect closes the gate at once
            for each in self._neighbours:
                each.stand_aside(0.0)
        self._gate.notify_all()

    def _wait_for_quiet(self, is_over: Callable[[], bool]) -> None:
        until, quiet = self._until, 0
        while quiet < _QUIET_LOOKS and self._until == until and time.monotonic() < until and not is_over():
            quiet = 0 if any(each.running for each in self._neighbours) else quiet + 1
            self._gate.wait(_LOOK_S)
