"""The nemesis: kills, stops, departures, arrivals and clock jumps at random moments, all of them from one seed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from tests.checker.history import Kind, now
from tests.checker.running.crew import Child, Crew, Role
from tests.support.host.wall_clock import set_wall_clock

_LONGEST_PAUSE_S = 0.25
_LONGER_THAN_A_LEASE = (1.1, 1.6)
_SHORTER_THAN_A_LEASE = (0.01, 0.4)
_MOST_MORE_WORKERS = 2
_FARTHEST_CLOCK_MS = 10 * 365 * 86_400_000


class Nemesis:
    """Does one thing to the crew now and then. The order of its doings follows from the seed, their moments do not."""

    def __init__(self, crew: Crew, seed: int, wall_clock: Path | None = None) -> None:
        self._crew = crew
        self._wall_clock = wall_clock
        self._chance = random.Random(seed)
        self._next_at = time.monotonic() + self._pause()
        self._doings: list[Callable[[], None]] = [
            *[self._kill_a_worker] * 5,
            *[self._kill_a_producer] * 2,
            *[self._stop_a_worker_past_its_lease] * 2,
            self._stop_somebody_shortly,
            *[self._let_a_worker_leave] * 2,
            *[self._let_a_worker_join] * 2,
            *[self._set_the_clock] * bool(wall_clock),
        ]

    def step(self) -> None:
        """Let those go on whose stop is over, and do the next thing when it is due."""
        self._crew.resume_due()
        if time.monotonic() >= self._next_at:
            if self._chance.random() < 0.02:
                self._kill_everybody()
            else:
                self._chance.choice(self._doings)()
            self._next_at = time.monotonic() + self._pause()

    def _pause(self) -> float:
        return self._chance.uniform(0, _LONGEST_PAUSE_S)

    def _one_of(self, children: list[Child]) -> Child | None:
        return self._chance.choice(children) if children else None

    def _running(self, role: Role) -> list[Child]:
        return [each for each in self._crew.of(role) if not each.resume_at]

    def _kill_a_worker(self) -> None:
        if child := self._one_of(self._running(Role.WORKER)):
            self._crew.kill(child)

    def _kill_a_producer(self) -> None:
        if child := self._one_of(self._running(Role.PRODUCER)):
            self._crew.kill(child)

    def _kill_everybody(self) -> None:
        self._crew.kill_all()

    def _stop_a_worker_past_its_lease(self) -> None:
        self._stop(self._one_of(self._running(Role.WORKER)), _LONGER_THAN_A_LEASE)

    def _stop_somebody_shortly(self) -> None:
        somebody = [child for role in Role for child in self._running(role)]
        self._stop(self._one_of(somebody), _SHORTER_THAN_A_LEASE)

    def _stop(self, child: Child | None, leases: tuple[float, float]) -> None:
        if child:
            self._crew.stop(child, self._chance.uniform(*leases) * self._crew.plan.lease_ms / 1000)

    def _let_a_worker_leave(self) -> None:
        if child := self._one_of(self._crew.of(Role.WORKER)):
            self._crew.history.write(Kind.LEAVE, now(), child.number)
            self._crew.ask_to_leave(child)

    def _set_the_clock(self) -> None:
        assert self._wall_clock is not None
        ahead_ms = self._chance.choice((0, self._chance.randint(-_FARTHEST_CLOCK_MS, _FARTHEST_CLOCK_MS)))
        set_wall_clock(self._wall_clock, ahead_ms)
        self._crew.history.write(Kind.CLOCK, now(), offset=ahead_ms)

    def _let_a_worker_join(self) -> None:
        group = self._chance.randrange(self._crew.plan.groups)
        if len(self._crew.of(Role.WORKER, group)) < self._crew.plan.workers + _MOST_MORE_WORKERS:
            self._crew.start(Role.WORKER, group)
