"""The life of one worker, row by row of its table, and that every other pair of phase and event changes nothing."""

from __future__ import annotations

import inspect
import re
import signal
from dataclasses import replace

import pytest

from rmqclient.workers.exit_codes import ExitCode, WorkerExit
from rmqclient.workers.processes import worker_life
from rmqclient.workers.processes.restart_policy import RestartHistory
from rmqclient.workers.processes.worker_life import (
    Action,
    Event,
    Exited,
    GiveUp,
    KillNow,
    Limits,
    MarkOverdue,
    Phase,
    Release,
    Say,
    Send,
    Start,
    Step,
    Stop,
    Tick,
    Vitals,
    Worker,
    step,
)

NOW = 1_000.0
LIMITS = Limits(start_timeout_s=60, message_time_limit_s=60.0)
NEVER = float("inf")

WELL = Vitals(ready=True, beat_age_s=0.4, message_age_s=None)
NOT_READY = Vitals(ready=False, beat_age_s=None, message_age_s=None)
SILENT = Vitals(ready=True, beat_age_s=31.0, message_age_s=None)
BUSY = Vitals(ready=True, beat_age_s=0.4, message_age_s=61.0)

ABRT, KILL, TERM = Send(signal.SIGABRT), Send(signal.SIGKILL), Send(signal.SIGTERM)


def worker(
    phase: Phase,
    *,
    due_at: float = NEVER,
    age_s: float = 5.0,
    suspect_s: float | None = None,
    was_ready: bool = False,
) -> Worker:
    """A worker that has been in its phase for ``age_s``, and under suspicion for ``suspect_s``."""
    return Worker(
        number=1,
        limits=LIMITS,
        phase=phase,
        due_at=due_at,
        started_at=NOW - age_s,
        ready_at=None if phase is Phase.STARTING else NOW - age_s,
        suspect_since=None if suspect_s is None else NOW - suspect_s,
        was_ready=was_ready,
    )


ROWS: list[tuple[str, Worker, Event, Phase, list[Action | type[Say]]]] = [
    ("due", worker(Phase.WAITING, due_at=NOW), Tick(), Phase.STARTING, [Start()]),
    ("not yet due", worker(Phase.WAITING, due_at=NOW + 1), Tick(), Phase.WAITING, []),
    ("crash loop due", worker(Phase.CRASH_LOOP, due_at=NOW), Tick(), Phase.STARTING, [Start()]),
    ("stop while waiting", worker(Phase.WAITING), Stop(NOW + 30), Phase.STOPPED, []),
    ("kill while waiting", worker(Phase.WAITING), KillNow(), Phase.STOPPED, []),
    ("stop in crash loop", worker(Phase.CRASH_LOOP), Stop(NOW + 30), Phase.STOPPED, []),
    ("kill in crash loop", worker(Phase.CRASH_LOOP), KillNow(), Phase.STOPPED, []),
    ("ready", worker(Phase.STARTING), Tick(WELL), Phase.READY, [Say]),
    ("still starting", worker(Phase.STARTING), Tick(NOT_READY), Phase.STARTING, []),
    ("slow start", worker(Phase.STARTING, age_s=61, suspect_s=1), Tick(NOT_READY), Phase.HUNG, [Say, ABRT]),
    ("late but ready", worker(Phase.STARTING, age_s=61, suspect_s=1), Tick(WELL), Phase.READY, [Say]),
    ("well", worker(Phase.READY), Tick(WELL), Phase.READY, []),
    ("silent at first sight", worker(Phase.READY), Tick(SILENT), Phase.READY, []),
    ("silent not long enough", worker(Phase.READY, suspect_s=0.9), Tick(SILENT), Phase.READY, []),
    ("silent", worker(Phase.READY, suspect_s=1), Tick(SILENT), Phase.HUNG, [Say, ABRT]),
    ("busy too long", worker(Phase.READY, suspect_s=1), Tick(BUSY), Phase.HUNG, [Say, MarkOverdue(60.0), ABRT]),
    ("hung, due", worker(Phase.HUNG, due_at=NOW), Tick(WELL), Phase.HUNG, [KILL]),
    ("hung, not due", worker(Phase.HUNG, due_at=NOW + 1), Tick(WELL), Phase.HUNG, []),
    ("killed already", worker(Phase.HUNG), Tick(WELL), Phase.HUNG, []),
    (
        "cannot boot",
        worker(Phase.STARTING),
        Exited(WorkerExit.CANNOT_BOOT),
        Phase.STOPPED,
        [Say, Release(), GiveUp(ExitCode.USAGE)],
    ),
    (
        "refused by its group",
        worker(Phase.STARTING),
        Exited(WorkerExit.REFUSED),
        Phase.STOPPED,
        [Say, Release(), GiveUp(ExitCode.REFUSED)],
    ),
    (
        "broken code on disk",
        worker(Phase.STARTING, was_ready=True),
        Exited(WorkerExit.CANNOT_BOOT),
        Phase.WAITING,
        [Say, Release()],
    ),
    (
        "another subscription on disk",
        worker(Phase.STARTING, was_ready=True),
        Exited(WorkerExit.REFUSED),
        Phase.WAITING,
        [Say, Release()],
    ),
    (
        "the store replaced",
        worker(Phase.STARTING, was_ready=True),
        Exited(WorkerExit.STORE_REPLACED),
        Phase.STOPPED,
        [Say, Release(), GiveUp(ExitCode.STORE_CANNOT_BE_OPENED)],
    ),
    ("died while starting", worker(Phase.STARTING), Exited(1), Phase.WAITING, [Say, Release()]),
    ("could not start", worker(Phase.STARTING), Exited(None), Phase.WAITING, [Say, Release()]),
    ("died", worker(Phase.READY), Exited(-9), Phase.WAITING, [Say, Release()]),
    ("said 78 of its own", worker(Phase.READY), Exited(78), Phase.WAITING, [Say, Release()]),
    ("hung, ended", worker(Phase.HUNG), Exited(-6), Phase.WAITING, [Say, Release()]),
    ("stop while starting", worker(Phase.STARTING), Stop(NOW + 30), Phase.DRAINING, [TERM]),
    ("stop", worker(Phase.READY), Stop(NOW + 30), Phase.DRAINING, [TERM]),
    ("stop while hung", worker(Phase.HUNG, due_at=NOW + 1), Stop(NOW + 30), Phase.DRAINING, []),
    ("deadline", worker(Phase.DRAINING, due_at=NOW), Tick(WELL), Phase.DRAINING, [Say, KILL]),
    ("draining", worker(Phase.DRAINING, due_at=NOW + 1), Tick(BUSY), Phase.DRAINING, []),
    ("drained", worker(Phase.DRAINING), Exited(0), Phase.STOPPED, [Say, Release()]),
    ("not drained", worker(Phase.DRAINING), Exited(-9), Phase.STOPPED, [Say, Release()]),
    ("kill while starting", worker(Phase.STARTING), KillNow(), Phase.DRAINING, [KILL]),
    ("kill", worker(Phase.READY), KillNow(), Phase.DRAINING, [KILL]),
    ("kill while hung", worker(Phase.HUNG), KillNow(), Phase.DRAINING, [KILL]),
    ("kill while draining", worker(Phase.DRAINING), KillNow(), Phase.DRAINING, [KILL]),
]


@pytest.mark.parametrize(
    ("before", "event", "phase", "actions"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_a_row_of_the_table(before: Worker, event: Event, phase: Phase, actions: list[Action | type[Say]]) -> None:
    after, done = step(before, event, NOW)
    assert after.phase is phase
    assert [Say if isinstance(action, Say) else action for action in done] == actions


UNTOUCHED: list[tuple[Phase, Event]] = [
    *((Phase.STOPPED, event) for event in (Tick(), Exited(0), Stop(NOW), KillNow())),
    (Phase.WAITING, Exited(0)),
    (Phase.CRASH_LOOP, Exited(0)),
    (Phase.DRAINING, Stop(NOW)),
]


@pytest.mark.parametrize(("phase", "event"), UNTOUCHED)
def test_other_events_change_nothing(phase: Phase, event: Event) -> None:
    before = worker(phase, due_at=NOW + 1)
    assert step(before, event, NOW) == (before, [])


def test_every_pair_of_phase_and_event_is_tested() -> None:
    tested = {(before.phase, type(event)) for _, before, event, _, _ in ROWS}
    tested |= {(phase, type(event)) for phase, event in UNTOUCHED}
    assert tested == {(phase, event) for phase in Phase for event in (Tick, Exited, Stop, KillNow)}


def test_every_phase_stands_in_the_table() -> None:
    words = set(re.findall(r"\b[A-Z_]+\b", inspect.getdoc(worker_life) or ""))
    assert {phase.name for phase in Phase} <= words


def test_a_beat_that_comes_again_takes_the_suspicion_away() -> None:
    # Given a silence seen once, as after the machine was suspended
    suspected, _ = step(worker(Phase.READY), Tick(SILENT), NOW)
    assert suspected.suspect_since == NOW

    # When the next look finds a fresh beat
    cleared, _ = step(suspected, Tick(WELL), NOW + 0.5)

    # Then a later silence starts from the beginning
    assert cleared.suspect_since is None


def test_a_hung_worker_is_killed_two_seconds_after_its_stacks_were_asked_for() -> None:
    hung, _ = step(worker(Phase.READY, suspect_s=1), Tick(SILENT), NOW)
    assert step(hung, Tick(SILENT), NOW + 1.9)[1] == []
    assert step(hung, Tick(SILENT), NOW + 2)[1] == [KILL]


def test_a_hung_worker_told_to_stop_is_not_given_the_time_of_a_healthy_one() -> None:
    stopping, _ = step(worker(Phase.HUNG, due_at=NOW + 2), Stop(NOW + 30), NOW)
    assert stopping.due_at == NOW + 2


def test_one_that_is_stopped_while_it_waits_to_be_killed_is_killed_once() -> None:
    once, actions = step(worker(Phase.DRAINING, due_at=NOW), Tick(WELL), NOW)
    assert KILL in actions
    assert step(once, Tick(WELL), NOW + 1) == (once, [])


def test_the_time_it_hung_does_not_count_as_health() -> None:
    # Given a worker that was ready for 35 s, and silent for the last 31 of them
    before = replace(worker(Phase.READY, age_s=35, suspect_s=1), history=RestartHistory(short_lives=3))
    hung, _ = step(before, Tick(SILENT), NOW)

    # When it has ended
    ended, _ = step(hung, Exited(-6), NOW + 1)

    # Then that was one more short life
    assert hung.healthy_s == pytest.approx(4)
    assert ended.history.short_lives == 4


def test_the_fifth_failed_boot_is_a_crash_loop_and_is_tried_again_slowly() -> None:
    # Given four failed boots
    before = replace(worker(Phase.STARTING), history=RestartHistory(failures=4, short_lives=4, failed_boots=4))

    # When it fails again
    looping, actions = step(before, Exited(1), NOW)

    # Then it waits for half a minute, and says so
    assert looping.phase is Phase.CRASH_LOOP
    assert looping.due_at == NOW + 30
    assert "crash loop" in said(actions)

    # And it is one failure away from the same after another start
    started, _ = step(looping, Tick(), NOW + 30)
    again, _ = step(started, Exited(1), NOW + 31)
    assert again.phase is Phase.CRASH_LOOP


def test_a_worker_that_was_ready_once_is_tried_again_with_the_code_that_is_on_disk_then() -> None:
    # Given a worker that was ready, and died
    ready, _ = step(worker(Phase.STARTING), Tick(WELL), NOW)
    died, _ = step(ready, Exited(-9), NOW + 60)

    # When it cannot load its handlers, five times
    told: list[Action] = []
    for number in range(1, 6):
        started, _ = step(died, Tick(), NOW + 100 * number)
        died, told = step(started, Exited(WorkerExit.CANNOT_BOOT), NOW + 100 * number)

    # Then it is in a crash loop like any other that cannot start, and the log names the remedy
    assert died.phase is Phase.CRASH_LOOP
    assert "correct that code" in said(told)


def test_a_start_forgets_the_process_before_it() -> None:
    before = replace(worker(Phase.WAITING, due_at=NOW, suspect_s=9), healthy_s=4.0)
    started, _ = step(before, Tick(), NOW)
    assert (started.ready_at, started.healthy_s, started.suspect_since) == (None, None, None)
    assert started.started_at == NOW


@pytest.mark.parametrize(("code", "unclean"), [(0, False), (WorkerExit.UNFINISHED, True), (-9, True)])
def test_a_stopped_worker_remembers_whether_it_finished(code: int, unclean: bool) -> None:
    stopped, _ = step(worker(Phase.DRAINING), Exited(code), NOW)
    assert stopped.unclean is unclean


def test_the_log_says_why_a_worker_hung_and_when_it_comes_back() -> None:
    assert "no sign of life for 31.0 s" in said(step(worker(Phase.READY, suspect_s=1), Tick(SILENT), NOW))
    assert "in its handler for 61.0 s" in said(step(worker(Phase.READY, suspect_s=1), Tick(BUSY), NOW))
    assert "not ready after 61 s" in said(step(worker(Phase.STARTING, age_s=61, suspect_s=1), Tick(NOT_READY), NOW))
    assert said(step(worker(Phase.READY), Exited(-9), NOW)) == (
        "killed by SIGKILL: by a person, or because memory ran out; starting it again in 0.1 s"
    )


def test_workers_are_told_to_drain_for_less_than_the_deadline() -> None:
    assert Limits(shutdown_timeout_s=30).drain_timeout_s == 28.5
    assert Limits(shutdown_timeout_s=3).drain_timeout_s == pytest.approx(2)
    assert Limits(shutdown_timeout_s=0).drain_timeout_s == 0


def said(step_or_actions: Step | list[Action]) -> str:
    actions = step_or_actions[1] if isinstance(step_or_actions, tuple) else step_or_actions
    return " ".join(action.text for action in actions if isinstance(action, Say))
