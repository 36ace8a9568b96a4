"""The phases of a run: faults, then none and everybody back until all is handled, then everybody leaves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.checker.plan import Mode, Plan
from tests.checker.running.crew import Crew, Role
from tests.checker.running.nemesis import Nemesis

_LOOK_S = 0.01
_HANDLED_BEFORE_PEACE = 0.7
"""Share of the deliveries that are due when the faults end; the rest is for the second phase."""

_LONGEST_EXIT_S = 20.0
_MOST_DEATHS = 20


@dataclass(slots=True)
class Outcome:
    """How the phases have ended."""

    processes: int
    """Numbers given to processes; they begin at 1, and 0 is the nemesis."""
    seconds: float
    """From the first send to the last commit."""
    stalled: list[str] = field(default_factory=list)
    died: dict[int, str] = field(default_factory=dict)
    """Processes that ended by themselves, and how."""


def run(
    plan: Plan,
    directory: Path,
    *,
    faults: bool,
    prepare: Callable[[], None] | None = None,
    wall_clock: Path | None = None,
) -> Outcome:
    """Run a plan in an empty directory. ``prepare`` is called in each child, before it begins.

    ``wall_clock`` is the file of a :class:`tests.support.host.wall_clock.WallClock` that this process runs under.
    """
    plan.prepare()
    crew = Crew(plan, directory, prepare)
    crew.unsent = plan.messages
    begun = time.monotonic()
    try:
        stalled = _with_faults(crew, Nemesis(crew, plan.seed, wall_clock)) if faults else []
        stalled = stalled or _in_peace(crew)
        seconds = time.monotonic() - begun
        stalled += _leave(crew)
    finally:
        crew.kill_all()
    return Outcome(crew.started, seconds, stalled, crew.died)


class _Patience:
    """Notices that nothing moves any more."""

    def __init__(self, plan: Plan) -> None:
        self._patience_s = plan.patience_s + plan.lease_ms / 1000
        self._last = (-1, -1)
        self._moved_at = 0.0

    def look(self, crew: Crew) -> list[str]:
        """Return what to say when the run has come to nothing; nothing while it gets on."""
        due, committed, _ = crew.progress()
        if (due, committed) != self._last:
            self._last, self._moved_at = (due, committed), time.monotonic()
        if time.monotonic() > self._moved_at + self._patience_s:
            return [f"nothing moved for {self._patience_s:.0f} s, with {committed} of {due} deliveries committed"]
        return ["too many processes ended by themselves"] if len(crew.died) > _MOST_DEATHS else []


def _with_faults(crew: Crew, nemesis: Nemesis) -> list[str]:
    """Let the nemesis do its work until most is handled; return what stands still."""
    patience = _Patience(crew.plan)
    while not (stalled := patience.look(crew)):
        _start_missing(crew)
        nemesis.step()
        time.sleep(_LOOK_S)
        due, committed, _ = crew.progress()
        if _is_sent(crew) and due and committed >= _HANDLED_BEFORE_PEACE * due:
            return []
    return stalled


def _in_peace(crew: Crew) -> list[str]:
    """Let everything be handled; return what stands still."""
    crew.resume_due(all_of_them=True)
    patience = _Patience(crew.plan)
    finished_at, looks_then = 0.0, 0
    while not (stalled := patience.look(crew)):
        _start_missing(crew)
        time.sleep(_LOOK_S)
        due, committed, looks = crew.progress()
        if not _is_sent(crew) or committed < due:
            finished_at = 0.0
        elif not finished_at:
            finished_at, looks_then = time.monotonic(), looks
        elif looks > looks_then + 1 and time.monotonic() > finished_at + _last_retry_s(crew.plan):
            return []
    return stalled


def _is_sent(crew: Crew) -> bool:
    return crew.unsent == 0 and not crew.of(Role.PRODUCER)


def _last_retry_s(plan: Plan) -> float:
    """Return how long after the last commit a delayed retry may still be on its way."""
    return 6.0 if Mode.POISON in plan.modes else 0.0


def _start_missing(crew: Crew) -> None:
    crew.reap()
    plan = crew.plan
    if not crew.of(Role.ONLOOKER):
        crew.start(Role.ONLOOKER)
    for group in range(plan.groups):
        for _ in range(plan.workers - len(crew.of(Role.WORKER, group))):
            crew.start(Role.WORKER, group)
    missing = plan.producers - len(crew.of(Role.PRODUCER))
    for left in range(missing, 0, -1):
        share = -(-crew.unsent // left)
        if share:
            crew.unsent -= share
            crew.start(Role.PRODUCER, share)


def _leave(crew: Crew) -> list[str]:
    """Let everybody leave, the onlooker last."""
    stuck = []
    crew.resume_due(all_of_them=True)
    for role in (Role.WORKER, Role.ONLOOKER):
        for child in crew.of(role):
            crew.ask_to_leave(child)
        deadline = time.monotonic() + _LONGEST_EXIT_S
        while crew.of(role) and time.monotonic() < deadline:
            crew.reap()
            time.sleep(_LOOK_S)
        stuck += [f"{role.value} {child.number} did not leave" for child in crew.of(role)]
        crew.show_where_they_stand()
    return stuck
