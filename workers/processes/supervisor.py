"""Keeps workers alive: the loop that gives ``worker_life`` its facts and carries out its decisions.

The supervisor as a whole::

    event                                          what it does                              exit code
    ---------------------------------------------  ----------------------------------------  ---------
    TERM, HUP, first Ctrl-C                        stops all workers at once, with one       0, or 1 if a worker was
                                                   deadline for all                          killed or left messages
    Ctrl-C while it stops                          kills the workers                         130
    a worker cannot load its handlers at first     stops all                                 2
    a group refuses a worker at first              stops all                                 4
    every worker is in a crash loop                stops                                     5
    the directory of the store is another one now  stops all                                 3
    TTIN, TTOU                                     one worker more, one less (not the last)
    its owner says STOP, or is gone                as TERM
    its owner says KILL                            kills the workers                         130
    it is killed itself                            the workers notice: :mod:`rmqclient.workers.processes.worker`

It waits on the workers' sentinels and on the pipe of its signals. When the wait times out, it looks at the worker
table and does what is due. It starts no thread and touches only processes that it started, and what those have left
behind: :mod:`rmqclient.workers.processes.left_behind`.
"""

from __future__ import annotations

import logging
import random
import signal
from collections.abc import Callable
from dataclasses import replace

import multiprocess.connection
from multiprocess.connection import Connection

from rmqclient.admin.workers import WorkerTable
from rmqclient.consuming.workers import KILL, STOP
from rmqclient.errors import QueueError, StoreReplaced
from rmqclient.workers.exit_codes import ExitCode
from rmqclient.workers.processes.children import Children
from rmqclient.workers.processes.reporting import Reporting
from rmqclient.workers.processes.signals import SignalPipe
from rmqclient.workers.processes.standing import Standing
from rmqclient.workers.processes.worker import Boot
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
    Stop,
    Tick,
    Worker,
    step,
)

LOOK_INTERVAL_S = 0.25
ENDING_S = 10.0
"""What the end may take after the last worker is gone: closing the store."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU)

_log = logging.getLogger(__name__)


class Supervisor:
    """Runs workers until it is asked to stop them.

    Every worker gets ``boot``, with its own slot and name, and with the time to drain that ``limits`` leave. Start the
    fork server first (:func:`rmqclient.workers.processes.child.start_fork_server`), and install ``signal_pipe`` with
    :data:`SIGNALS`.
    Workers are members ``<member_name>-1``, ``-2`` and so on of broadcast groups; a worker that replaces
    another one has its number. ``check_in_place`` raises StoreReplaced when another store is at the path. ``owner`` is
    the process with which the workers end, and which may send :data:`STOP` and :data:`KILL`. ``mark`` writes starts,
    stops and failures of workers into the marks of the store, under the name and version ``application``.
    """

    def __init__(
        self,
        table: WorkerTable,
        boot: Boot,
        signal_pipe: SignalPipe,
        *,
        processes: int,
        limits: Limits | None = None,
        member_name: str = "worker",
        reporting: Reporting | None = None,
        check_in_place: Callable[[], None] = lambda: None,
        mark: Callable[[str, str, str], None] = lambda *_: None,
        application: str = "",
        owner: Connection | None = None,
    ) -> None:
        self._owner = owner
        self._check_in_place = check_in_place
        self._mark = mark
        self._application = application
        self._signals = signal_pipe
        self._limits = limits or Limits()
        self._member_name = member_name
        self._reporting = reporting or Reporting()
        self._workers: dict[int, Worker] = {}
        self._standing = Standing()
        boot = replace(boot, drain_timeout_s=self._limits.drain_timeout_s)
        self._children = Children(table, boot, self._standing, member_name)
        self._stopping = False
        self._exit_code = ExitCode.OK
        for _ in range(processes):
            self._add_worker()

    def run(self) -> ExitCode:
        """Return when every worker has stopped. If the loop itself raises, kill the remaining workers."""
        workers = "1 worker" if len(self._workers) == 1 else f"{len(self._workers)} workers"
        self._mark("start", self._member_name, f"{workers} of {self._application}")
        end = "ended by an error"
        try:
            while self._workers:
                self._turn()
            end = f"ended: {self._exit_code.name.lower()}"
        finally:
            self._children.kill_all()
            self._mark("stop", self._member_name, f"{self._application} {end}")
        return self._exit_code

    def _turn(self) -> None:
        awaited = [self._signals, *self._children.sentinels()]
        if self._owner is not None:
            awaited.append(self._owner)
        ready = multiprocess.connection.wait(awaited, self._seconds_to_wait())
        for arrived in self._signals.read():
            self._on_signal(arrived)
        if self._owner in ready:
            self._on_word(self._owner)
        for number, code in self._children.exits():
            if self._workers[number].phase is Phase.STARTING:  # it may have been ready since the last look
                self._feed(number, Tick(self._children.vitals(number)))
            self._feed(number, Exited(code, random.random()))
        self._standing.look(self._children.pids())
        for number in list(self._workers):
            self._feed(number, Tick(self._children.vitals(number)))
        if all(worker.phase is Phase.CRASH_LOOP for worker in self._workers.values()):
            _log.error("every worker is in a crash loop: giving up")
            self._give_up(ExitCode.CRASH_LOOP)
        if not self._stopping:
            self._look()
        self._forget_stopped_workers()
        self._children.look_at_orphans()
        self._reporting.look(len(self._workers), self._children.statuses())

    def _look(self) -> None:
        try:
            self._check_in_place()
        except StoreReplaced:  # which was said when it was found
            self._give_up(ExitCode.STORE_CANNOT_BE_OPENED)
        except QueueError as error:
            _log.error("%s", error)

    def _seconds_to_wait(self) -> float:
        due_s = min(worker.due_at for worker in self._workers.values()) - self._standing.ran_s()
        return max(0.0, min(due_s, LOOK_INTERVAL_S))

    def _feed(self, number: int, event: Event) -> None:
        self._workers[number], actions = step(self._workers[number], event, self._standing.ran_s())
        for action in actions:
            self._carry_out(number, action)

    def _carry_out(self, number: int, action: Action) -> None:
        match action:
            case Start():
                if not self._children.start(number):
                    self._feed(number, Exited(None, random.random()))
            case Send(signal_number):
                self._children.send(number, signal_number)
            case MarkOverdue(limit_s):
                self._children.mark_overdue(number, limit_s)
            case Release():
                self._children.release(number)
            case Say(level, text):
                pid = self._children.shown_pid(number)
                _log.log(level, "worker %d%s: %s", number, pid, text)
                if not self._stopping and level >= logging.WARNING:
                    self._mark("worker", f"{self._member_name}-{number}", f"{text}{pid}")
            case GiveUp(code):
                self._give_up(code)

    def _on_signal(self, arrived: signal.Signals) -> None:
        match arrived:
            case signal.SIGINT if self._stopping:
                self._kill_all()
            case signal.SIGINT | signal.SIGTERM | signal.SIGHUP:
                self._stop_all()
            case signal.SIGTTIN if not self._stopping:
                self._add_worker()
                self._mark("scale", self._member_name, "one worker more")
            case signal.SIGTTOU:
                self._stop_last_worker()

    def _on_word(self, owner: Connection) -> None:
        try:
            word = owner.recv()
        except (EOFError, OSError):
            word, self._owner = STOP, None
        if word == KILL:
            self._kill_all()
        else:
            self._stop_all()

    def _stop_all(self) -> None:
        """Signal all workers, with one deadline for all. A second call changes nothing."""
        if self._stopping:
            return
        self._stopping = True
        in_flight = sum(status.in_flight for status in self._children.statuses().values())
        _log.log(
            logging.WARNING if in_flight else logging.INFO,
            "stopping: messages in flight: %d, they may finish within %g s. "
            "The next Ctrl-C kills the workers at once; their messages are then delivered again",
            in_flight,
            self._limits.shutdown_timeout_s,
        )
        self._reporting.stopping(in_flight, self._limits.shutdown_timeout_s + ENDING_S)
        kill_at = self._standing.ran_s() + self._limits.shutdown_timeout_s
        for number in self._workers:
            self._feed(number, Stop(kill_at))

    def _kill_all(self) -> None:
        _log.warning("killing the workers; their messages in flight are delivered again")
        self._exit_code = ExitCode.INTERRUPTED
        for number in self._workers:
            self._feed(number, KillNow())

    def _give_up(self, code: ExitCode) -> None:
        if self._exit_code is ExitCode.OK:
            self._exit_code = code
        self._stop_all()

    def _add_worker(self) -> None:
        number = max(self._workers, default=0) + 1
        was_ready = any(worker.was_ready for worker in self._workers.values())
        due_at = self._standing.ran_s()
        self._workers[number] = Worker(number=number, limits=self._limits, due_at=due_at, was_ready=was_ready)

    def _stop_last_worker(self) -> None:
        running = [number for number, worker in self._workers.items() if worker.phase is not Phase.DRAINING]
        if len(running) > 1:
            self._feed(max(running), Stop(self._standing.ran_s() + self._limits.shutdown_timeout_s))
            self._mark("scale", self._member_name, "one worker less")

    def _forget_stopped_workers(self) -> None:
        for number, worker in list(self._workers.items()):
            if worker.phase is Phase.STOPPED:
                del self._workers[number]
                if worker.unclean and self._stopping and self._exit_code is ExitCode.OK:
                    self._exit_code = ExitCode.FAILED
