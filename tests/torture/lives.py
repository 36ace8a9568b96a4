"""The processes of a rig: each is forked, and has a file for what it says and one for what it dies of."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_PR_SET_PDEATHSIG = 1

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Life:
    """A process, by its number among all of the rig."""

    number: int
    role: str
    pid: int

    def __str__(self) -> str:
        return f"{self.role} {self.number}"


class Lives:
    """Starts and ends the processes of a rig, and reads what they said. A context manager that leaves none alive.

    The process that has it must have one thread and no store open when it starts another one.
    """

    def __init__(self, evidence: Path) -> None:
        evidence.mkdir(parents=True, exist_ok=True)
        self._evidence = evidence
        self._alive: list[Life] = []
        self._started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for life in list(self._alive):
            self.kill(life)

    @property
    def alive(self) -> list[Life]:
        """Those that were not ended."""
        return list(self._alive)

    def start(self, role: str, live: Callable[[Path], None]) -> Life:
        """Start a process; ``live`` gets the file for its evidence, and the process ends when it returns."""
        number = self._started
        self._started += 1
        starter = os.getpid()
        pid = os.fork()
        if pid == 0:
            _end_with(starter)
            self._live(number, live)
        life = Life(number, role, pid)
        self._alive.append(life)
        return life

    def kill(self, life: Life) -> int:
        """Kill a process; return how it ended, as :func:`os.waitstatus_to_exitcode` says."""
        return self.end(life, signal.SIGKILL, 30)

    def end(self, life: Life, signal_number: int, within_s: float) -> int:
        """Send a signal, 0 for none, and wait for the end; return how it ended. It is killed if that takes too long."""
        until = time.monotonic() + within_s
        os.kill(life.pid, signal_number)
        while (status := os.waitpid(life.pid, os.WNOHANG)) == (0, 0):
            if time.monotonic() > until:
                os.kill(life.pid, signal.SIGKILL)
                status = os.waitpid(life.pid, 0)
                break
            time.sleep(0.002)
        self._alive.remove(life)
        return os.waitstatus_to_exitcode(status[1])

    def has_stopped(self, life: Life, within_s: float) -> bool:
        """Wait until a process has stopped; tell whether it did in time. One that ends meanwhile is found later."""
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            found = os.waitid(os.P_PID, life.pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is not None:
                return found.si_code == os.CLD_STOPPED
            time.sleep(0.002)
        return False

    def ended(self) -> dict[Life, str]:
        """Bury those that have ended by themselves; return how, and their last words."""
        found = {}
        for life in list(self._alive):
            pid, status = os.waitpid(life.pid, os.WNOHANG)
            if pid:
                self._alive.remove(life)
                found[life] = f"{_shown(os.waitstatus_to_exitcode(status))} {self.last_words(life)}".strip()
        return found

    def lines(self, number: int) -> list[str]:
        """Return what a process has said, whole lines only: a kill can cut a write where a page of the file ends."""
        path = self._evidence / str(number)
        text = path.read_text(encoding="ascii") if path.exists() else ""
        return text.rpartition("\n")[0].splitlines()

    def last_words(self, life: Life) -> str:
        """Return the last line that a process wrote to its standard error."""
        errors = self._evidence / f"{life.number}.errors"
        text = errors.read_text(encoding="utf-8", errors="replace") if errors.exists() else ""
        return next((line for line in reversed(text.splitlines()) if line), "")

    def _live(self, number: int, live: Callable[[Path], None]) -> None:
        """Live in a forked child; never returns."""
        status = 1
        try:
            with (self._evidence / f"{number}.errors").open("w") as errors:
                os.dup2(errors.fileno(), 2)
            live(self._evidence / str(number))
            status = 0
        except BaseException:  # noqa: BLE001 - whatever it is, the child must not return into the life of its parent
            traceback.print_exc()
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(status)


def saying(evidence: Path) -> Say:
    """Return what writes one line of evidence by one write, which a kill cannot take back."""
    descriptor = os.open(evidence, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return lambda line: _write(descriptor, line)


def until_told() -> Callable[[], bool]:
    """From now on, let SIGTERM ask for the end; return what tells whether it did."""
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    return lambda: bool(told)


def _end_with(starter: int) -> None:
    """Let the kernel kill this process when the one that started it dies, even if this one stands still by then."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != starter:
        os._exit(1)


def _write(descriptor: int, line: str) -> None:
    os.write(descriptor, f"{line}\n".encode())


def _shown(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"status {status}"
