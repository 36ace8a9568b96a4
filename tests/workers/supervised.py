"""A supervisor in a process group of its own, seen from outside: by its log, its workers' records and its exit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from click.testing import CliRunner

from rmqclient.workers.cli import rmq as command_line

T = TypeVar("T")

REPOSITORY = Path(__file__).parents[2]
APPS = Path(__file__).parent / "apps"
LONG_S = 120.0
"""More than anything here takes on a busy machine; only a failing test waits that long."""


class Supervised:
    """``rmq run`` of one of the applications in ``apps``, or of a target, started at once.

    Its store, its log and its workers' records are in ``directory``, where it runs. ``command`` is what stands before
    ``run``.
    """

    def __init__(self, directory: Path, application: str, *options: str, command: Sequence[str] | None = None) -> None:
        target = application if ":" in application else f"{APPS / application}.py:app"
        self.directory = directory
        self.root = directory / "store"
        self.log_path = directory / "log"
        self.record_path = directory / "record"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*(command or COMMAND), "run", target, "--store", str(self.root), *options],
                cwd=directory,
                env=environment(RECORD=str(self.record_path)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8")

    def send(self, *bodies: str) -> None:
        for body in bodies:
            rmq("send", "orders", body, "--store", str(self.root), "-o", "jsonl")

    def ready(self, workers: int) -> dict[int, int]:
        """Wait until so many workers have been ready, and return the last process id of each by its number."""
        eventually(lambda: len(self.pids()) >= workers, f"{workers} ready workers", self)
        return self.pids()

    def replaced(self, number: int, pid: int) -> int:
        """Wait until the worker of this number is ready in another process than ``pid``, and return its id."""
        eventually(lambda: self.pids()[number] != pid, f"another worker {number}", self)
        return self.pids()[number]

    def pids(self) -> dict[int, int]:
        return {int(number): int(pid) for number, pid in re.findall(r"worker (\d+) \(pid (\d+)\): ready", self.log)}

    def logged(self, pattern: str) -> None:
        eventually(lambda: re.search(pattern, self.log), f"{pattern!r} in the log", self)

    def records(self, what: str) -> list[int]:
        """The process ids that have recorded ``what``."""
        if not self.record_path.exists():
            return []
        lines = self.record_path.read_text(encoding="utf-8").splitlines()
        return [int(line.split(" ", 1)[0]) for line in lines if line.split(" ", 1)[1] == what]

    def recorded(self, what: str) -> int:
        """Wait for the first record of ``what``; return the id of the process that made it."""
        eventually(lambda: self.records(what), f"{what!r} in the records", self)
        return self.records(what)[0]

    def tell_group(self, number: signal.Signals) -> None:
        """Send a signal as a terminal or a service manager does: to every process at once."""
        os.killpg(self.process.pid, number)

    def kill_group(self) -> None:
        """Kill every process at once, as a power cut does; return when all their files are closed."""
        self.tell_group(signal.SIGKILL)
        self.process.wait(LONG_S)
        eventually(lambda: not threads_of_group(self.process.pid), "the end of the killed", self)

    def exit_code(self) -> int:
        try:
            return self.process.wait(LONG_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the supervisor did not end; its log:\n{self.log}") from None

    def end(self) -> None:
        """Leave no process behind, whatever became of the test."""
        for number in (signal.SIGCONT, signal.SIGKILL):
            try:
                self.tell_group(number)
            except ProcessLookupError:
                break
        self.process.wait(LONG_S)


COMMAND = (sys.executable, "-m", "rmqclient.workers")


def rmq(*arguments: str) -> str:
    """Run one command that must succeed, in this process, and return what it printed."""
    done = CliRunner(env={name: None for name in os.environ if name.startswith("RMQ_")}).invoke(command_line, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def environment(**more: str) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RMQ_")}
    return {**kept, "PYTHONPATH": str(REPOSITORY), **more}


def eventually(condition: Callable[[], object], what: str, supervised: Supervised | None = None) -> None:
    """Look until the condition holds; fail with ``what`` was expected, and with the log."""
    until = time.monotonic() + LONG_S
    while not condition():
        log = f"; its log:\n{supervised.log}" if supervised else ""
        assert time.monotonic() < until, f"never saw {what}{log}"
        threading.Event().wait(0.02)


def runs(pid: int) -> bool:
    """Whether a process exists and is not merely waiting for somebody to read its exit code.

    The first thread of a killed process can be a zombie while others still hold its files and locks.
    """
    return any(not status.is_dead for status in map(ThreadStatus.read, Path(f"/proc/{pid}/task").glob("*/stat")))


def threads_of_group(group: int) -> list[ThreadStatus]:
    """The threads of all processes of a process group but for zombies, which have closed their files."""
    found = map(ThreadStatus.read, Path("/proc").glob("[0-9]*/task/*/stat"))
    return [status for status in found if status.group == group and not status.is_dead]


@dataclass(frozen=True, slots=True)
class ThreadStatus:
    """What the kernel says of one thread: proc(5), ``stat``."""

    state: str
    group: int

    @classmethod
    def read(cls, path: Path) -> ThreadStatus:
        try:
            state, _parent, group, *_ = path.read_text(encoding="utf-8").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return cls("X", 0)
        return cls(state, int(group))

    @property
    def is_dead(self) -> bool:
        return self.state in "ZX"


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]
