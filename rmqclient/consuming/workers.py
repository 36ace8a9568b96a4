"""Workers: worker processes of an application, which a ``with`` block starts and stops.

::

    with app.workers(processes=4):
        ...

``rmq run`` is given a name that its workers import. The handlers of a notebook, or of the script that runs, have none:
the workers get a copy of the application, by :mod:`rmqclient.consuming.copies`.

A process of its own supervises them as ``rmq run`` does, so this one keeps its signals, its threads and its children as
they are::

    this process  ── Plan ─────────────────────────────►  supervisor  ──►  workers
                  ◄── READY, or why it ends ────────────
                  ── STOP, KILL, or the end of all ─────►

Signals of the terminal go to this process alone: Ctrl-C leaves the block, and the end of the block stops the workers.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

import multiprocess
from multiprocess.connection import Connection

from rmqclient.consuming.copies import Application, CopiedApp
from rmqclient.duration import Duration, in_seconds, to_seconds
from rmqclient.errors import HandlerError, WorkersEnded
from rmqclient.names import check_member
from rmqclient.store import fork
from rmqclient.store.numbers import whole

if TYPE_CHECKING:
    from rmqclient.store import StoreConfig

SUPERVISOR = "rmqclient.workers.processes.owned"
"""The module that the supervisor runs; a name, because it lies above this package."""

WORKER = "rmq-worker-"
"""How the names of worker processes begin."""

READY, STOP, KILL = "ready", "stop", "kill"

_ENDING_S = 10.0
"""What the supervisor may take, beyond the time of its workers, before it is killed."""


class Placed(Application, Protocol):
    """An App."""

    config: StoreConfig | None

    @property
    def root(self) -> Path | str:
        """The directory of the store, or the URL of a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All inputs of the supervisor."""

    root: Path | str
    config: StoreConfig | None
    app: CopiedApp
    before_import: bytes
    """Functions that a worker runs before it loads ``app``."""
    processes: int
    timeout_s: float
    """How long messages may take to finish at the end."""
    time_limit_s: float
    """Longest time for one message; infinity for no limit."""
    member_name: str
    log_level: int
    path: list[str]
    """``sys.path`` of the process that has the block."""


class Workers:
    """The worker processes of one ``with`` block. :meth:`rmqclient.App.workers` makes it, and describes the options."""

    def __init__(
        self, app: Placed, *, processes: int | None, timeout: Duration, time_limit: Duration | None, member_name: str
    ) -> None:
        self._app = app
        usable = len(os.sched_getaffinity(0))
        self._processes = usable if processes is None else whole("processes", processes, least=1)
        self._timeout_s = in_seconds("timeout", timeout)
        self._time_limit_s = float("inf") if time_limit is None else in_seconds("time_limit", time_limit, least=1)
        check_member(f"{member_name}-1")
        self._member_name = member_name
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        """Return when every worker is ready. Raises HandlerError before a process starts, and WorkersEnded."""
        plan = self._plan()
        self._connection, theirs = multiprocess.Pipe()
        with theirs:
            # -P: a file of the application has the name of none of our modules
            command = [sys.executable, "-P", "-m", SUPERVISOR, str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True
            )
        fork.register(self)
        try:
            with suppress(BrokenPipeError):  # it has ended, and said why
                self._connection.send(plan)
            if (said := self._said()) != READY:
                raise WorkersEnded(said)
        except BaseException:
            self._stop(self._process)
            raise
        return self

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until the workers have ended by themselves, and return whether they have; False after ``timeout``.

        Workers that die are started again. So this returns True only for one of the reasons of WorkersEnded, which the
        end of the block raises then, or because their supervisor was told to stop.
        """
        if self._process is None:
            return True
        try:
            self._process.wait(None if timeout is None else to_seconds("timeout", timeout))
        except subprocess.TimeoutExpired:
            return False
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the messages in flight finish, and end the workers. Raises WorkersEnded if they had ended before."""
        process = self._process
        if process is None:  # in a child that was forked meanwhile: they are its parent's
            return
        had_failed = bool(process.poll())
        said = self._said() if had_failed else ""
        self._stop(process)
        if had_failed and kind is None:
            raise WorkersEnded(said)

    def leave_to_parent(self) -> None:
        """Leave the workers to the process that this one was forked from."""
        if self._connection is not None:
            self._connection.close()
        self._process = None

    def _plan(self) -> Plan:
        if multiprocess.current_process().name.startswith(WORKER):
            raise HandlerError(
                "a worker starts no workers: write `with app.workers()` below `if __name__ == '__main__':`"
            )
        if not self._app.handlers and not self._app.crons:
            raise HandlerError(f"{self._app} has no handler: decorate a function with @app.handler(topic, group=...)")
        return Plan(
            root=self._app.root,
            config=self._app.config,
            app=CopiedApp.of(self._app),
            before_import=self._app.hooks.before_import(),
            processes=self._processes,
            timeout_s=self._timeout_s,
            time_limit_s=self._time_limit_s,
            member_name=self._member_name,
            log_level=logging.getLogger("rmqclient").getEffectiveLevel(),
            path=[each or str(Path.cwd()) for each in sys.path],
        )

    def _said(self) -> str:
        """Return what the supervisor says next: READY, or why it ends."""
        assert self._connection is not None
        try:
            return str(self._connection.recv())
        except (EOFError, ConnectionResetError):
            return "their supervisor was killed, or failed: the log on standard error says why"

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        assert self._connection is not None
        try:
            self._tell(STOP)
            process.wait(self._timeout_s + _ENDING_S)
        except BaseException as error:  # the second Ctrl-C among others
            self._tell(KILL)
            try:
                process.wait(_ENDING_S)
            finally:
                process.kill()  # which does nothing when it has ended
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        finally:
            self._connection.close()

    def _tell(self, word: str) -> None:
        assert self._connection is not None
        with suppress(BrokenPipeError, ConnectionResetError):  # it has ended
            self._connection.send(word)
