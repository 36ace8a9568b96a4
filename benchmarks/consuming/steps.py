"""Steps: messages a second that one thread handles in three durable steps, beside a handler that does nothing.

Compared with SQLite, which commits the result of each step, what a handler without steps would have to do itself; and
with DBOS, which keeps the results of a workflow's steps in SQLite.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks import traffic
from benchmarks.child import Begin, Child, alone
from benchmarks.consuming import dbos_steps
from benchmarks.measure import WARMED, Benchmark, Samples, Size, Span, rate, scratch
from benchmarks.package import installed
from rmqclient import ReceivedMessage

NAMES = ("charge", "pack", "ship")
PLAIN = "a handler that does nothing"
STEPS = "three steps"
SQLITE = "three results in SQLite, WAL, each in a transaction"
DBOS = "a DBOS workflow of three steps, SQLite"
_BODY_BYTES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Number of messages and of turns."""

    repetitions: int
    messages: int
    plain_messages: int
    workflows: int
    """Of DBOS; 0 leaves it out."""


def handle(message: ReceivedMessage) -> None:
    """Handle a message in three steps, whose results are small."""
    step = message.steps
    for name in NAMES:
        step(name, _result)


def in_sqlite(begin: Begin, path: Path, messages: int) -> Span:
    """Look for results and insert three of them for each message, with a commit for each."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("CREATE TABLE results (message, step, result, PRIMARY KEY (message, step)) WITHOUT ROWID")
        begin()
        begun_ns = time.monotonic_ns()
        for number in range(messages):
            database.execute("SELECT step, result FROM results WHERE message = ?", (number,)).fetchall()
            for name in NAMES:
                database.execute("INSERT INTO results VALUES (?, ?, ?)", (number, name, '{"number": 7}'))
        return Span(messages=messages, record_bytes=0, begun_ns=begun_ns, ended_ns=time.monotonic_ns())


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure everything once in each turn."""
    samples.note(WARMED)
    samples.note(
        "Each message has its results looked up once, by the index of the store, and three results stored. Results are "
        "in the page cache when the next step begins, as with SQLite's synchronous = NORMAL: a kill takes none of them."
    )
    with scratch(directory) as packages:
        peer = (
            installed(dbos_steps.PACKAGE, packages / "dbos")
            if parameters.workflows
            else "a run of this size installs nothing"
        )
        if isinstance(peer, str):
            samples.note(f"{DBOS}: not measured: {peer}.")
        else:
            samples.note(f"{dbos_steps.PACKAGE} runs with its own settings, and its workflows come from no queue.")
        for _ in range(parameters.repetitions):
            _measure(parameters, directory, samples, peer)
    samples.add_ratio("three steps to SQLite", "one thread", (STEPS, "one thread"), (SQLITE, "one thread"))
    if not isinstance(peer, str):
        samples.add_ratio("three steps to DBOS", "one thread", (STEPS, "one thread"), (DBOS, "one thread"))


def _measure(parameters: Parameters, directory: Path, samples: Samples, peer: Path | str) -> None:
    for name, handler, messages in (
        (PLAIN, traffic.ignore, parameters.plain_messages),
        (STEPS, handle, parameters.messages),
    ):
        with scratch(directory, messages * 1_024) as root:
            alone(Child(traffic.send_prebuilt, root, messages, _BODY_BYTES))
            samples.add(name, "one thread", "/s", rate(alone(Child(traffic.consume, root, handle=handler))))
    with scratch(directory) as path:
        span = alone(Child(in_sqlite, path / "peer.db", parameters.messages))
    samples.add(SQLITE, "one thread", "/s", rate(span))
    if not isinstance(peer, str):
        with scratch(directory) as path:
            work = Child(dbos_steps.work, peer, path / "dbos.db", parameters.workflows, len(NAMES))
            samples.add(DBOS, "one thread", "/s", rate(alone(work)))


def _result() -> dict[str, int]:
    return {"number": 7}


BENCHMARK = Benchmark(
    name="steps",
    title="Durable steps",
    parameters={
        Size.FULL: Parameters(repetitions=5, messages=20_000, plain_messages=600_000, workflows=200),
        Size.QUICK: Parameters(repetitions=1, messages=5_000, plain_messages=300_000, workflows=50),
        Size.SMALLEST: Parameters(repetitions=1, messages=200, plain_messages=200, workflows=0),
    },
    run=run,
)
