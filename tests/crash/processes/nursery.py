"""A process that forks the children of the crash tests, with everything imported: a kill takes milliseconds then.

``python -m tests.crash.processes.nursery`` answers each order with how the child ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path

from tests.crash.processes.child import run
from tests.crash.processes.order import Order
from tests.support.host.forking import ForkingProcess


class Nursery(ForkingProcess):
    """Starts the process, hands it orders, ends it. A context manager."""

    def __init__(self) -> None:
        super().__init__("tests.crash.processes.nursery")

    def run(self, order: Order) -> int:
        """Run one child to its end; return its exit status, negative for the signal that killed it."""
        return os.waitstatus_to_exitcode(int(self.ask(order.text())))

    def kill_at_its_point(self, order: Order) -> list[str]:
        """Run a child that must be killed at its crash point; return what it said before."""
        status = self.run(order)
        assert status == -signal.SIGKILL, f"no {order.scenario} reaches {order.point}: exit status {status}"
        return notes_of(order)


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
