"""A child process of a crash test: it plays one scenario until it is killed.

``python -m tests.crash.processes.child ORDER`` takes its order as JSON. The folder ``scenarios`` has one function for
each scenario. A child reports each operation that has returned by one write to a file outside the store, one line for
each, so a kill cannot take a report back. The tests find out everything else by themselves.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable

from tests.crash.processes.order import Note, Order
from tests.crash.processes.scenarios.appending import append, append_durably, index, open_and_close, send_once
from tests.crash.processes.scenarios.crons import tick
from tests.crash.processes.scenarios.databases import handle_once, relay
from tests.crash.processes.scenarios.delays import (
    cancel_timed,
    deliver,
    deliver_timed,
    persist_schedule,
    persist_timer,
    roll_timed,
)
from tests.crash.processes.scenarios.progress import acknowledge, begin, commit, seek, skip, step_over, write_offsets
from tests.crash.processes.scenarios.replicas import fence, replicate, send_replicated, swap_roles
from tests.crash.processes.scenarios.transactions import check, decide
from tests.crash.processes.scenarios.upkeep import clean, compact, keep_history, keep_house, write_marks

LONGEST_LIFE_S = 30


SCENARIOS: dict[str, Callable[[Order, Note], None]] = {
    function.__name__: function
    for function in (
        append,
        append_durably,
        acknowledge,
        skip,
        seek,
        commit,
        step_over,
        begin,
        index,
        write_offsets,
        open_and_close,
        clean,
        compact,
        deliver,
        persist_schedule,
        deliver_timed,
        cancel_timed,
        roll_timed,
        persist_timer,
        decide,
        check,
        relay,
        send_once,
        handle_once,
        tick,
        replicate,
        send_replicated,
        swap_roles,
        fence,
        keep_house,
        keep_history,
        write_marks,
    )
}


def run(order: Order) -> None:
    """Do what the order says, in this process."""
    signal.alarm(LONGEST_LIFE_S)  # a child that hangs must not outlive its test
    notes = os.open(order.notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    SCENARIOS[order.scenario](order, lambda said: _write(notes, said))


def _write(descriptor: int, said: object) -> None:
    os.write(descriptor, f"{said}\n".encode())


if __name__ == "__main__":
    run(Order(**json.loads(sys.argv[1])))
