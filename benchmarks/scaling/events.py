"""Events: the clock of the simulation, and what happens when."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

Event = Callable[[], None]


class Clock:
    """Simulated time, in seconds. One thing happens at a time; what it spends passes for nobody else.

    It stands in for the module ``time`` in the code that is simulated.
    """

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Event]] = []
        self._count = itertools.count()
        self._now = 0.0
        self._spent = 0.0

    def monotonic(self) -> float:
        """Return the time of the one that acts now."""
        return self._now + self._spent

    def spend(self, seconds: float) -> None:
        """Let the one that acts now wait, or compute, so long."""
        self._spent += seconds

    def at(self, when: float, event: Event) -> None:
        """Let something happen, not before now."""
        heapq.heappush(self._due, (max(when, self._now), next(self._count), event))

    def after(self, delay_s: float, event: Event) -> None:
        """Let something happen so much later."""
        self.at(self.monotonic() + delay_s, event)

    def run(self, until: float) -> None:
        """Let everything happen that is due until then."""
        while self._due and self._due[0][0] <= until:
            self._now, _, event = heapq.heappop(self._due)
            self._spent = 0.0
            event()
        self._now, self._spent = until, 0.0
