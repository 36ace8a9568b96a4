"""Append: messages a second that one process and two can send, one by one and in batches.

Compared with a memcpy of the same bytes, the limit of the machine, and with the same fields in SQLite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import baselines, traffic
from benchmarks.child import Child, alone, together
from benchmarks.measure import (
    WARMED,
    Benchmark,
    Samples,
    Size,
    Span,
    Target,
    at_least,
    in_bytes,
    rate,
    scratch,
)

SEND = "send, one process"
SEND_TWO = "send, two processes together"
PREBUILT = "send_batch of 100, messages made before"
BUILT = "send_batch of 100, messages made in the loop"
FRESH = "memcpy into fresh pages of the file, 1 MiB at a time"
FRESH_RECORDS = "memcpy into fresh pages, record by record from Python"
TOUCHED = "memcpy into the same pages again, 1 MiB at a time"
TOUCHED_RECORDS = "memcpy into the same pages again, record by record from Python"
SQLITE = "SQLite, one insert in a transaction"
SQLITE_HUNDRED = "SQLite, 100 inserts in a transaction"

TARGETS: Mapping[tuple[str, int], Target] = {
    (SEND, 100): at_least(1e6),
    (SEND, 1024): at_least(0.7e6),
    (PREBUILT, 100): at_least(5e6),
}
TWO_TO_ONE = at_least(1.5)
BATCH_TO_MEMCPY = {1024: at_least(0.6)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Numbers of messages of one body size."""

    body_bytes: int
    sent: int
    """Sent one by one; two processes send half of them each."""
    sent_in_batches: int
    inserted: int
    """Inserted into SQLite, one in a transaction."""
    inserted_by_hundred: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The body sizes, and the number of turns."""

    repetitions: int
    cases: tuple[Case, ...]


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure everything once in each turn."""
    samples.note(WARMED)
    samples.note(
        "Each send makes its own message, with a tag, a key and a sharding key, in a topic of 4 queues; what the "
        "message costs is part of the figure. memcpy is given in records of the same size a second."
    )
    samples.note(
        "The store's housekeeper flushes twice a second meanwhile, as it does for everybody; SQLite, in WAL mode with "
        "synchronous=NORMAL, flushes at its checkpoints."
    )
    for _ in range(parameters.repetitions):
        for case in parameters.cases:
            _measure(case, directory, samples)
    for case in parameters.cases:
        _compare(case, samples)


def _measure(case: Case, directory: Path, samples: Samples) -> None:
    size = case.body_bytes
    sent = _sent(case, directory, samples)
    _copied(case, sent, directory, samples)
    for name, rows, per_transaction in ((SQLITE, case.inserted, 1), (SQLITE_HUNDRED, case.inserted_by_hundred, 100)):
        with scratch(directory, writes=rows * _about(case)) as path:
            span = alone(Child(baselines.insert, path / "peer.db", rows, size, per_transaction))
        samples.add(name, in_bytes(size), "/s", rate(span))


def _sent(case: Case, directory: Path, samples: Samples) -> Span:
    """Send in every way; return the span of the batches."""
    size, spans = case.body_bytes, {}
    with scratch(directory, writes=case.sent * _about(case)) as root:
        spans[SEND] = [alone(Child(traffic.send, root, case.sent, size))]
    with scratch(directory, writes=case.sent * _about(case)) as root:
        half = case.sent // 2
        spans[SEND_TWO] = together(*(Child(traffic.send, root, half, size) for _ in range(2)))
    with scratch(directory, writes=case.sent_in_batches * _about(case)) as root:
        spans[PREBUILT] = [alone(Child(traffic.send_prebuilt, root, case.sent_in_batches, size))]
    with scratch(directory, writes=case.sent_in_batches * _about(case)) as root:
        spans[BUILT] = [alone(Child(traffic.send_built, root, case.sent_in_batches, size))]
    for name, found in spans.items():
        samples.add(name, in_bytes(size), "/s", rate(*found), TARGETS.get((name, size)))
    return spans[PREBUILT][0]


def _copied(case: Case, sent: Span, directory: Path, samples: Samples) -> None:
    """Copy the number of bytes of the batches."""
    for one_by_one, fresh, touched in ((False, FRESH, TOUCHED), (True, FRESH_RECORDS, TOUCHED_RECORDS)):
        with scratch(directory, writes=sent.messages * sent.record_bytes) as path:
            arguments = (path / "peer", sent.messages, sent.record_bytes)
            copied = alone(Child(baselines.copy, *arguments, one_by_one=one_by_one))
        samples.add(fresh, in_bytes(case.body_bytes), "/s", rate(copied.fresh))
        samples.add(touched, in_bytes(case.body_bytes), "/s", rate(copied.touched))


def _about(case: Case) -> int:
    """Return somewhat more bytes than a message takes on disk."""
    return case.body_bytes + 256


def _compare(case: Case, samples: Samples) -> None:
    size = in_bytes(case.body_bytes)
    for name, of, to, target in (
        ("two processes to one", SEND_TWO, SEND, TWO_TO_ONE),
        ("send_batch to memcpy into fresh pages", PREBUILT, FRESH, BATCH_TO_MEMCPY.get(case.body_bytes)),
        ("send to SQLite, one in a transaction", SEND, SQLITE, None),
        ("send_batch to SQLite, 100 in a transaction", BUILT, SQLITE_HUNDRED, None),
    ):
        samples.add_ratio(name, size, (of, size), (to, size), target)


def _parameters(repetitions: int, share: float) -> Parameters:
    """Return a share of the full run; at least one batch of 100."""

    def part(messages: int) -> int:
        return max(100, int(messages * share))

    return Parameters(
        repetitions=repetitions,
        cases=tuple(
            Case(
                body_bytes=body_bytes,
                sent=part(sent),
                sent_in_batches=part(in_batches),
                inserted=part(30_000),
                inserted_by_hundred=part(200_000),
            )
            for body_bytes, sent, in_batches in ((100, 1_000_000, 3_000_000), (1024, 600_000, 600_000))
        ),
    )


BENCHMARK = Benchmark(
    name="append",
    title="Sending",
    parameters={
        Size.FULL: _parameters(5, 1.0),
        Size.QUICK: _parameters(1, 0.2),
        Size.SMALLEST: _parameters(1, 0.0),
    },
    run=run,
)
