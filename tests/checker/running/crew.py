"""The crew of a run: forked processes by number, how they begin, and how each has ended."""

from __future__ import annotations

import enum
import faulthandler
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.checker.history import History, Kind, now, read
from tests.checker.plan import SEQUENCE_BITS, Plan
from tests.checker.running.workload import Progress, leave, look_on, produce, work

_SHOW_STACKS = signal.SIGUSR2


class Role(enum.Enum):
    """What a process does."""

    PRODUCER = "producer"
    WORKER = "worker"
    ONLOOKER = "onlooker"


@dataclass(slots=True)
class Child:
    """A process that has not ended yet."""

    number: int
    pid: int
    role: Role
    share: int
    """Group of a worker; of a producer the messages that it has to send."""
    resume_at: float = 0.0
    """When a stopped one is to go on, on the monotonic clock; 0 for one that runs."""
    leaving: bool = False
    """It was asked to; one that was not ready yet ends by the signal itself."""


class Crew:
    """Starts, signals and reaps the processes. Its own process has one thread and no store, so that forks are clean."""

    def __init__(self, plan: Plan, directory: Path, prepare: Callable[[], None] | None = None) -> None:
        self.plan = plan
        self.root = directory / "store"
        self.histories = directory / "history"
        self.histories.mkdir(parents=True)
        self.history = History(self.histories, 0)
        self.progress = Progress()
        self.children: list[Child] = []
        self.unsent = 0
        """Messages that killed producers have left to their successors."""
        self.died: dict[int, str] = {}
        """Processes that ended as nobody had asked them to, by number, and how."""
        self._prepare = prepare
        self._started = 0

    @property
    def started(self) -> int:
        """Numbers given so far; the first is 1."""
        return self._started

    def of(self, role: Role, group: int | None = None) -> list[Child]:
        """Return the processes of a role, those of one group if it is given."""
        return [each for each in self.children if each.role is role and group in {None, each.share}]

    def start(self, role: Role, share: int = 0) -> Child:
        """Fork a process that begins at once."""
        self._started += 1
        number = self._started
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            self._live(number, role, share)
        child = Child(number, pid, role, share)
        self.children.append(child)
        self.history.write(Kind.JOIN, now(), number, group=share if role is Role.WORKER else 0)
        return child

    def kill(self, child: Child) -> None:
        """Kill a process and wait until it is gone."""
        self.history.write(Kind.KILL, now(), child.number, detail=signal.SIGKILL)
        os.kill(child.pid, signal.SIGKILL)
        _, status = os.waitpid(child.pid, 0)
        self.history.write(Kind.KILLED, now(), child.number)
        self._ended(child, status, killed=True)

    def stop(self, child: Child, seconds: float) -> None:
        """Stop a process; :meth:`resume_due` lets it go on after so long."""
        self.history.write(Kind.STOP, now(), child.number)
        os.kill(child.pid, signal.SIGSTOP)
        child.resume_at = time.monotonic() + seconds

    def resume_due(self, *, all_of_them: bool = False) -> None:
        """Let those go on whose time has come."""
        for child in self.children:
            if child.resume_at and (all_of_them or time.monotonic() >= child.resume_at):
                os.kill(child.pid, signal.SIGCONT)
                self.history.write(Kind.RESUME, now(), child.number)
                child.resume_at = 0.0

    def ask_to_leave(self, child: Child) -> None:
        """Ask a process to end orderly."""
        child.leaving = True
        os.kill(child.pid, signal.SIGTERM)

    def show_where_they_stand(self) -> None:
        """Let those that are still there write the stacks of their threads to standard error."""
        for child in self.children:
            if child.role is not Role.ONLOOKER:
                os.kill(child.pid, _SHOW_STACKS)
                time.sleep(0.2)

    def reap(self) -> None:
        """Look who has ended."""
        for child in list(self.children):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self._ended(child, status, killed=False)

    def kill_all(self) -> None:
        """End everything; for the end of a run that failed."""
        for child in list(self.children):
            self.kill(child)

    def _ended(self, child: Child, status: int, *, killed: bool) -> None:
        self.children.remove(child)
        if child.role is Role.PRODUCER:
            self.unsent += child.share - self._sent_by(child.number)
        code = os.waitstatus_to_exitcode(status)
        if not killed and code and not (child.leaving and code == -signal.SIGTERM):
            self.died[child.number] = f"{child.role.value} {child.number} ended by itself with status {code}"

    def _sent_by(self, number: int) -> int:
        """Return how many messages a producer has at least begun to send."""
        records = read(self.histories, number)
        sends = records[records["kind"] == Kind.SEND]
        return int(sends["subject"][-1] - (number << SEQUENCE_BITS) + sends["detail"][-1]) if len(sends) else 0

    def _live(self, number: int, role: Role, share: int) -> None:
        """Live in a forked child; never returns."""
        status = 1
        try:
            history = History(self.histories, number)
            faulthandler.register(_SHOW_STACKS)

            def ready() -> None:
                history.write(Kind.START, now(), number)

            if self._prepare is not None:
                self._prepare()
            if role is Role.PRODUCER:
                produce(self.plan, self.root, history, share, ready)
            elif role is Role.WORKER:
                work(self.plan, self.root, history, share, ready)
            else:
                look_on(self.plan, self.root, history, self.progress, ready)
            leave(history, self.root)
            status = 0
        except BaseException:  # noqa: BLE001 - whatever it is, the child must not return into the life of its parent
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(status)
