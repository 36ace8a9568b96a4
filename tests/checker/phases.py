"""The phases of a run: faults, then none and everybody back until all is handled, then everybody leaves."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.checker.crew import Crew, Role
from tests.checker.nemesis import Nemesis
from tests.checker.plan import Mode, Plan

_LOOK_S = 0.01
_HANDLED_BEFORE_PEACE = 0.7
"""Share of the deliveries that are due when the faults end; the rest is for the second phase."""

_LONGEST_EXIT_S = 40.0
_LAST_RETRY_S = 6.0
"""After the last committed message a delayed retry may still be on its way."""


@dataclass(slots=True)
class Outcome:
    """How the phases have ended."""

    processes: int
    """Numbers given to processes; they begin at 1, and 0 is the nemesis."""
    seconds: float
    """From the first send to the last commit."""
    stalled: list[str] = field(default_factory=list)
    died: list[str] = field(default_factory=list)


def run(plan: Plan, directory: Path, *, faults: bool, prepare: Callable[[], None] | None = None) -> Outcome:
    """Run a plan in an empty directory. ``prepare`` is called in each child, before it begins."""
    plan.prepare()
    crew = Crew(plan, directory, prepare)
    crew.unsent = plan.messages
    begun = time.monotonic()
    try:
        if faults:
            _with_faults(crew, Nemesis(crew, plan.seed))
        stalled = _in_peace(crew)
        seconds = time.monotonic() - begun
        stalled += _leave(crew)
    finally:
        crew.kill_all()
    return Outcome(crew.started, seconds, stalled, crew.died)


def _with_faults(crew: Crew, nemesis: Nemesis) -> None:
    while True:
        _start_missing(crew)
        nemesis.step()
        time.sleep(_LOOK_S)
        due, committed, _ = crew.progress()
        if crew.unsent == 0 and not crew.of(Role.PRODUCER) and due and committed >= _HANDLED_BEFORE_PEACE * due:
            return


def _in_peace(crew: Crew) -> list[str]:
    """Let everything be handled; return what did not come to an end."""
    crew.resume_due(all_of_them=True)
    moved_at, last = time.monotonic(), (-1, -1, -1)
    finished_at = 0.0
    patience = crew.plan.patience_s + crew.plan.lease_ms / 1000
    while True:
        _start_missing(crew)
        time.sleep(_LOOK_S)
        due, committed, looks = crew.progress()
        if (due, committed) != last[:2]:
            moved_at, last, finished_at = time.monotonic(), (due, committed, looks), 0.0
        quiet = crew.unsent == 0 and not crew.of(Role.PRODUCER) and committed == due and looks > last[2] + 1
        if quiet:
            finished_at = finished_at or time.monotonic()
            if Mode.POISON not in crew.plan.modes or time.monotonic() > finished_at + _LAST_RETRY_S:
                return []
        if time.monotonic() > moved_at + patience:
            return [f"nothing moved for {patience:.0f} s, with {committed} of {due} deliveries committed"]


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
    for role in (Role.WORKER, Role.ONLOOKER):
        for child in crew.of(role):
            os.kill(child.pid, signal.SIGTERM)
        deadline = time.monotonic() + _LONGEST_EXIT_S
        while crew.of(role) and time.monotonic() < deadline:
            crew.reap()
            time.sleep(_LOOK_S)
        stuck += [f"{role.value} {child.number} did not leave" for child in crew.of(role)]
    return stuck
