"""The life of one worker as a pure state machine. Nothing here touches a process, a clock or the store.

``step`` is the whole table::

    phase               event                          next phase            actions
    ------------------  -----------------------------  --------------------  ---------------------------------
    WAITING CRASH_LOOP  Tick, due                      STARTING              Start
    WAITING CRASH_LOOP  Stop, KillNow                  STOPPED
    STARTING            Tick, its slot says ready      READY                 Say
    STARTING            Tick, too long not ready (*)   HUNG                  Say, Send ABRT
    READY               Tick, beat too old (*)         HUNG                  Say, Send ABRT
    READY               Tick, message too old (*)      HUNG                  Say, MarkOverdue, Send ABRT
    HUNG                Tick, due                      HUNG                  Send KILL
    STARTING            Exited, STORE_REPLACED         STOPPED               Say, Release, GiveUp
    STARTING            Exited, CANNOT_BOOT, REFUSED,  STOPPED               Say, Release, GiveUp
                        and it was never ready
    STARTING READY HUNG Exited, otherwise              WAITING, CRASH_LOOP   Say, Release
    STARTING READY      Stop                           DRAINING              Send TERM
    HUNG                Stop                           DRAINING              (KILL stays due)
    DRAINING            Tick, due                      DRAINING              Say, Send KILL
    DRAINING            Exited                         STOPPED               Say, Release
    any with a process  KillNow                        DRAINING              Send KILL

What holds in each phase: a worker that is WAITING or in CRASH_LOOP has no process and no slot, and is due at its
restart. STARTING, READY, HUNG and DRAINING have both; HUNG and DRAINING are due at their KILL. STOPPED has neither, for
ever. Every other pair of phase and event changes nothing.

A worker that was ready before and cannot load its handlers, or is refused, has met other code on disk than the workers
that run: it is tried again like any other that fails, and they go on.

(*) Only when two ticks a second apart both see it: after a suspended machine or a Ctrl-Z, the first look finds every
beat old. Three signs answer three questions. The beat, from a thread of its own, shows that the worker is alive. The
state, which the worker sets when its consumer runs, shows that it is ready. The age of its oldest message shows that it
is busy for too long.
"""

from __future__ import annotations

import enum
import logging
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rmqclient.workers.exit_codes import ExitCode, WorkerExit, in_words
from rmqclient.workers.processes.restart_policy import RestartHistory, RestartPolicy

_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The times that a worker may take, in seconds."""

    start_timeout_s: float = 600.0
    """From the start of the process until it is ready: what it loads may be large."""

    beat_timeout_s: float = 30.0
    """From its last beat. A beat is due every half second; code that keeps the interpreter busy may delay it."""

    message_time_limit_s: float = 900.0
    """From the handler's call for its oldest message in flight; infinity for no limit. [consumeTimeout, 15 minutes]"""

    confirm_s: float = 1.0
    """A limit must be seen broken for this long."""

    abort_grace_s: float = 2.0
    """From SIGABRT, which prints the stacks, until SIGKILL."""

    shutdown_timeout_s: float = 30.0
    """From SIGTERM until SIGKILL; one deadline for all workers."""

    restart: RestartPolicy = field(default_factory=RestartPolicy)

    @property
    def drain_timeout_s(self) -> float:
        """The worker's own limit: less than that, for what it cancels to clean up, and for it to leave its groups."""
        return max(0.0, self.shutdown_timeout_s - min(1.5, self.shutdown_timeout_s / 3))


class Phase(enum.Enum):
    """Where a worker is in its life; see the table at the head of this module."""

    WAITING = "waiting for its restart"
    CRASH_LOOP = "in a crash loop"
    STARTING = "starting"
    READY = "ready"
    HUNG = "hung"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One worker as the state machine sees it. Times are seconds in which the supervisor has run."""

    number: int
    limits: Limits
    phase: Phase = Phase.WAITING
    due_at: float = 0.0
    """When a tick will have something to do in this phase: restart or KILL."""

    started_at: float = 0.0
    ready_at: float | None = None
    healthy_s: float | None = None
    """How long it was ready and well before it hung; None while it is not hung."""

    suspect_since: float | None = None
    """The time since which every look has found a limit broken."""

    was_ready: bool = False
    """Whether a process of it, or of the workers beside which it was added, was ready once."""

    history: RestartHistory = field(default_factory=RestartHistory)
    unclean: bool = False
    """The worker was told to stop, and ended with messages in flight or by a signal."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """The worker table's view of a process. Ages in seconds; None before the first beat, or without a message."""

    ready: bool
    beat_age_s: float | None
    message_age_s: float | None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. ``vitals`` are those of its process, None without a process."""

    vitals: Vitals | None = None


@dataclass(frozen=True, slots=True)
class Exited:
    """Its process ended with ``code`` (negative: by a signal), or could not be started (None)."""

    code: int | None
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class Stop:
    """Finish what is in flight; KILL is due at ``kill_at``."""

    kill_at: float


@dataclass(frozen=True, slots=True)
class KillNow:
    """End without finishing anything."""


@dataclass(frozen=True, slots=True)
class Start:
    """Claim a slot and start a process."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a signal to the process."""

    number: signal.Signals


@dataclass(frozen=True, slots=True)
class MarkOverdue:
    """Say which messages the process is ended for: those that it has run for longer than the limit."""

    limit_s: float


@dataclass(frozen=True, slots=True)
class Release:
    """Give the slot back and forget the process."""


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the log, at a level of :mod:`logging`."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop the whole supervisor, which then exits with ``code``."""

    code: ExitCode


Event = Tick | Exited | Stop | KillNow
Action = Start | Send | MarkOverdue | Release | Say | GiveUp
Step = tuple[Worker, list[Action]]

_FOR_GOOD: Mapping[int, ExitCode] = MappingProxyType(
    {
        WorkerExit.CANNOT_BOOT: ExitCode.USAGE,
        WorkerExit.REFUSED: ExitCode.REFUSED,
        WorkerExit.STORE_REPLACED: ExitCode.STORE_CANNOT_BE_OPENED,
    }
)
"""Exit codes of a starting worker after which another worker would end the same way."""

_BY_THE_CODE_ON_DISK = (WorkerExit.CANNOT_BOOT, WorkerExit.REFUSED)
"""Exit codes of which that is true only as long as nobody changes the code of the application."""

_REMEDY = (
    "a worker that is started again runs the code as it is on disk then: correct that code, or restart all workers if "
    "they are to run it"
)

_WITHOUT_PROCESS = (Phase.WAITING, Phase.CRASH_LOOP, Phase.STOPPED)


def step(worker: Worker, event: Event, now: float) -> Step:
    """Return the worker after ``event``, and the actions to carry out. Pure; the table heads this module."""
    if worker.phase is Phase.STOPPED:
        return worker, []
    match event:
        case Tick(vitals):
            return _tick(worker, vitals, now)
        case Exited(code, jitter):
            return _exited(worker, code, jitter, now)
        case Stop(kill_at):
            return _stop(worker, kill_at)
        case KillNow():
            return _kill(worker)


def _tick(worker: Worker, vitals: Vitals | None, now: float) -> Step:
    due = now >= worker.due_at
    match worker.phase:
        case Phase.WAITING | Phase.CRASH_LOOP if due:
            return _started(worker, now), [Start()]
        case Phase.HUNG if due:
            return replace(worker, due_at=_NEVER), [Send(signal.SIGKILL)]
        case Phase.DRAINING if due:
            text = "not finished in time: killed; its messages in flight are delivered again"
            return replace(worker, due_at=_NEVER), [Say(logging.WARNING, text), Send(signal.SIGKILL)]
        case Phase.STARTING if vitals is not None and vitals.ready:
            ready = replace(worker, phase=Phase.READY, ready_at=now, suspect_since=None, was_ready=True)
            return ready, [Say(logging.INFO, "ready")]
        case Phase.STARTING | Phase.READY if vitals is not None:
            return _watched(worker, vitals, now)
    return worker, []


def _started(worker: Worker, now: float) -> Worker:
    return replace(
        worker,
        phase=Phase.STARTING,
        due_at=_NEVER,
        started_at=now,
        ready_at=None,
        healthy_s=None,
        suspect_since=None,
    )


def _watched(worker: Worker, vitals: Vitals, now: float) -> Step:
    broken = _broken_limit(worker, vitals, now)
    if broken is None:
        return replace(worker, suspect_since=None), []
    if worker.suspect_since is None:
        return replace(worker, suspect_since=now), []
    if now - worker.suspect_since < worker.limits.confirm_s:
        return worker, []
    text, age_s = broken
    healthy_s = None if worker.ready_at is None else max(0.0, now - worker.ready_at - age_s)
    hung = replace(worker, phase=Phase.HUNG, due_at=now + worker.limits.abort_grace_s, healthy_s=healthy_s)
    limit_s = worker.limits.message_time_limit_s
    marks = [MarkOverdue(limit_s)] if (vitals.message_age_s or 0) > limit_s else []
    said = Say(logging.ERROR, f"hung: {text}; printing its stacks, then killing it")
    return hung, [said, *marks, Send(signal.SIGABRT)]


def _broken_limit(worker: Worker, vitals: Vitals, now: float) -> tuple[str, float] | None:
    """Return the broken limit in words, and for how many seconds nothing useful has happened; None if all is well."""
    limits = worker.limits
    if worker.ready_at is None:
        starting_s = now - worker.started_at
        return (f"not ready after {starting_s:.0f} s", starting_s) if starting_s > limits.start_timeout_s else None
    if vitals.beat_age_s is not None and vitals.beat_age_s > limits.beat_timeout_s:
        return f"no sign of life for {vitals.beat_age_s:.1f} s", vitals.beat_age_s
    if vitals.message_age_s is not None and vitals.message_age_s > limits.message_time_limit_s:
        text = f"a message has been in its handler for {vitals.message_age_s:.1f} s"
        return f"{text}, the limit is {limits.message_time_limit_s:g} s", vitals.message_age_s
    return None


def _exited(worker: Worker, code: int | None, jitter: float, now: float) -> Step:
    if worker.phase in _WITHOUT_PROCESS:
        return worker, []
    if worker.phase is Phase.DRAINING:
        level = logging.WARNING if code else logging.INFO
        return replace(worker, phase=Phase.STOPPED, unclean=bool(code)), [Say(level, in_words(code)), Release()]
    if worker.phase is Phase.STARTING and code is not None and code in _FOR_GOOD:
        if worker.was_ready and code in _BY_THE_CODE_ON_DISK:
            return _to_be_restarted(worker, f"{in_words(code)}; {_REMEDY}", code, jitter, now)
        stopped = replace(worker, phase=Phase.STOPPED)
        return stopped, [Say(logging.ERROR, in_words(code)), Release(), GiveUp(_FOR_GOOD[code])]
    return _to_be_restarted(worker, in_words(code), code, jitter, now)


def _to_be_restarted(worker: Worker, why: str, code: int | None, jitter: float, now: float) -> Step:
    healthy_s = worker.healthy_s
    if worker.phase is Phase.READY and worker.ready_at is not None:
        healthy_s = now - worker.ready_at
    elif code == WorkerExit.NAME_TAKEN:
        healthy_s = 0.0  # no failed boot: it can be ready when the name is free
    restart = worker.limits.restart.after_failure(worker.history, healthy_s=healthy_s, jitter=jitter)
    text = f"{why}; starting it again in {restart.delay_s:.1f} s"
    if restart.crash_loop:
        text += f" (crash loop: {restart.history.short_lives} short lives in a row)"
    phase = Phase.CRASH_LOOP if restart.crash_loop else Phase.WAITING
    waiting = replace(worker, phase=phase, due_at=now + restart.delay_s, history=restart.history)
    return waiting, [Say(logging.WARNING, text), Release()]


def _stop(worker: Worker, kill_at: float) -> Step:
    match worker.phase:
        case Phase.WAITING | Phase.CRASH_LOOP:
            return replace(worker, phase=Phase.STOPPED), []
        case Phase.STARTING | Phase.READY:
            return replace(worker, phase=Phase.DRAINING, due_at=kill_at), [Send(signal.SIGTERM)]
        case Phase.HUNG:
            return replace(worker, phase=Phase.DRAINING), []
    return worker, []


def _kill(worker: Worker) -> Step:
    if worker.phase in _WITHOUT_PROCESS:
        return replace(worker, phase=Phase.STOPPED), []
    return replace(worker, phase=Phase.DRAINING, due_at=_NEVER), [Send(signal.SIGKILL)]
