"""A process that forks the children of the crash tests, with everything imported: a kill takes milliseconds then.

It has one thread and no store open, so a fork of it is as good as a new process. ``python -m
tests.crash.processes.nursery`` reads orders, one a line, and answers each with how the child ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.crash.processes.child import run
from tests.crash.processes.order import Order

ROOT = Path(__file__).parents[3]


class Nursery:
    """Starts the process, hands it orders, ends it. A context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.processes.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=ROOT,
        )

    def run(self, order: Order) -> int:
        """Run one child to its end; return its exit status, negative for the signal that killed it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(order.text(), file=self._process.stdin, flush=True)
        return os.waitstatus_to_exitcode(int(self._process.stdout.readline()))

    def kill_at_its_point(self, order: Order) -> list[str]:
        """Run a child that must be killed at its crash point; return what it said before."""
        status = self.run(order)
        assert status == -signal.SIGKILL, f"no {order.scenario} reaches {order.point}: exit status {status}"
        return notes_of(order)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def notes_of(order: Order) -> list[str]:
    """Return what a child said, by line."""
    try:
        return Path(order.notes).read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return []


def main() -> None:
    """Fork a child for each line of standard input."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(_live(line))
        print(os.waitpid(child, 0)[1], flush=True)


def _live(line: str) -> int:
    try:
        run(Order(**json.loads(line)))
    except BaseException:  # noqa: BLE001 - whatever it is, the child must not return into the loop of its parent
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main()
