"""Histories made by hand: a story is told step by step, each a millisecond after the one before, and then judged."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from tests.checker.history import DTYPE, Kind
from tests.checker.plan import SEQUENCE_BITS, Mode, Plan
from tests.checker.rules.checks import judge
from tests.checker.rules.evidence import Evidence, from_records
from tests.checker.rules.final_read import Log
from tests.checker.running.phases import Outcome

NEMESIS, PRODUCER, OTHER_PRODUCER, WORKER, OTHER_WORKER = range(5)
_MS = 1_000_000
LEASE_MS = 500


class Story:
    """What the processes of a run wrote down, and what the final read found.

    There is one topic of the mode, with one queue that has the number 0, and one group.
    """

    def __init__(self, mode: Mode = Mode.CONCURRENT, *, seed: int = 1) -> None:
        self.plan = Plan(seed=seed, messages=0, modes=(mode,), groups=1, queues=1, threads=2, lease_ms=LEASE_MS)
        self.at = _MS
        self.rows: list[tuple[int, int, int, int]] = []
        """Of the log: message, queue, queue offset, key."""
        self.committed: dict[tuple[int, int], int] = {}
        self.outcome = Outcome(processes=4, seconds=1.0)
        self.damaged: list[str] = []
        self.misplaced: list[str] = []
        self._records: dict[int, list[tuple[int, ...]]] = defaultdict(list)

    def write(self, process: int, kind: Kind, *, at: int | None = None, **fields: int) -> None:
        """Let a process write a record."""
        self.at += _MS
        names = DTYPE.names or ()
        values = {"at": self.at if at is None else at, "kind": kind} | fields
        self._records[process].append(tuple(values.get(name, 0) for name in names))

    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.at += ms * _MS

    def store(self, subject: int, offset: int | None = None, *, queue: int = 0, key: int = 0) -> None:
        """Put a message into the log, behind the last one if no offset is given."""
        behind = sum(row[1] == queue for row in self.rows)
        self.rows.append((subject, queue, behind if offset is None else offset, key))

    def send(self, numbers: range, producer: int = PRODUCER, *, key: int = 0) -> None:
        """Send a batch that is stored behind the last one."""
        first = message(numbers[0], producer)
        offset = len(self.rows)
        self.write(producer, Kind.SEND, subject=first, detail=len(numbers))
        for number in numbers:
            self.store(message(number, producer), key=key)
        self.write(producer, Kind.SENT, subject=first, detail=len(numbers), offset=offset)

    def grant(self, process: int, epoch: int, committed: int = 0) -> None:
        """Give the queue to a process."""
        self.write(process, Kind.RENEW, subject=epoch)
        self.write(process, Kind.GRANT, subject=epoch, offset=committed)

    def begin(self, process: int, offset: int, *, subject: int | None = None, right: bool = True, **more: int) -> None:
        """Begin a handler call."""
        self._handle(process, Kind.HANDLE, offset, subject, detail=int(right), **more)

    def end(self, process: int, offset: int, *, subject: int | None = None, failed: bool = False, **more: int) -> None:
        """End it."""
        self._handle(process, Kind.HANDLE_FAILED if failed else Kind.HANDLED, offset, subject, **more)

    def commit(self, process: int, offset: int, epoch: int = 1, *, refused: bool = False, queue: int = 0) -> None:
        """Acknowledge."""
        self.write(process, Kind.REFUSED if refused else Kind.COMMIT, subject=epoch, offset=offset, queue=queue)

    def handle(self, process: int, *offsets: int, epoch: int = 1) -> None:
        """Begin, end and acknowledge, one message after the other."""
        for offset in offsets:
            self.begin(process, offset)
            self.end(process, offset)
            self.commit(process, offset, epoch)

    def kill(self, process: int) -> None:
        """Kill a process."""
        self.write(NEMESIS, Kind.KILL, subject=process)
        self.write(NEMESIS, Kind.KILLED, subject=process)

    def stop_past_the_lease(self, process: int) -> None:
        """Stop a process for longer than its lease; it has not gone on yet."""
        self.write(NEMESIS, Kind.STOP, subject=process)
        self.wait(LEASE_MS + 100)

    def evidence(self) -> Evidence:
        """Return it all, with the offsets kept as they must be if nobody said otherwise."""
        columns = np.array(self.rows, np.int64).reshape(-1, 4).T
        planned = self.plan.topic_of_queue
        ends = {queue: sum(row[1] == queue for row in self.rows) for queue in planned}
        kept = {(0, queue): end for queue, end in ends.items()} | self.committed
        subject, queue, offset, key = columns
        log = Log(subject, queue, offset, key, damaged=self.damaged, misplaced=self.misplaced, committed=kept)
        records: list[Any] = [np.array(self._records[process], DTYPE) for process in range(5)]
        return from_records(self.plan, records, log, self.outcome)

    def found(self) -> dict[str, int]:
        """Return how often each anomaly was found."""
        return judge(self.evidence()).counts

    def _handle(self, process: int, kind: Kind, offset: int, subject: int | None, **fields: int) -> None:
        if subject is None:
            subject = next(row[0] for row in self.rows if row[1:3] == (0, offset))
        self.write(process, kind, subject=subject, offset=offset, **fields)


def message(number: int, producer: int = PRODUCER) -> int:
    """Return a message of a producer."""
    return producer << SEQUENCE_BITS | number


def good_story(mode: Mode = Mode.CONCURRENT, messages: int = 6) -> Story:
    """Tell of a batch that was sent, granted to a worker and not yet handled."""
    story = Story(mode)
    story.send(range(messages))
    story.grant(WORKER, 1)
    return story
