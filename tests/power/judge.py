"""What must be in a store after a power cut, by the evidence, and what is there.

Everything here is pure: evidence and records go in, problems and figures come out, so that the judge can be tested with
made-up histories.

- A SYNC send that returned is there.
- An ASYNC send that returned is there when a flush that had covered it was over before the cut, and in any case when
  it was older than the loss window.
- What a finished recovery found stays there, at its place; what it did not find never comes back.
- Nothing is there that was not sent, or with another body, or in another place than the sender was told.
- A group's committed offset is within the queue, and no message below it is one that nobody acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.power.life import name_of
from tests.support.oracle.reference import ReferenceRecord

Name = tuple[int, int]
"""Sender and number of a message."""


class Place(NamedTuple):
    """Where a message stands."""

    topic: str
    queue_id: int
    queue_offset: int


@dataclass(slots=True)
class Sent:
    """A message whose send began, and how it ended."""

    topic: str
    sync: bool
    acknowledged_ns: int | None = None
    place: Place | None = None
    batch_end: int = 0
    """First byte of the log behind its batch."""
    cut: PowerCut | None = None
    """The first one after it."""


@dataclass(slots=True)
class PowerCut:
    """What is known of a cut."""

    at_ns: int
    """The last moment before it."""
    flushed_to: int = 0
    """The store said before it that every byte below is durable."""
    window_ms: float = 0.0
    """Of ASYNC: what is older must be there."""
    log_end: int | None = None
    """Where the log ended after the next recovery."""


@dataclass(slots=True)
class Figures:
    """What the judge has seen."""

    acknowledged_sync: int = 0
    acknowledged_async: int = 0
    unknown: int = 0
    acknowledged_during_a_cut_and_lost: int = 0
    """Not required: ``fdatasync`` of ext4 can return 0 while ``FS_IOC_SHUTDOWN`` runs and what it wrote is dropped."""
    lost_sync: int = 0
    lost_async: int = 0
    oldest_lost_ms: float = 0.0
    judgements: int = 0


@dataclass(slots=True)
class Recovered:
    """What the process that recovered the store said of it."""

    log_end: int
    groups: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    """Topic, queue, committed, min and max offset."""


class Ledger:
    """What is known of one store, from its first message on."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._open: dict[Name, Sent] = {}
        self._there: dict[Name, tuple[Place, int]] = {}  # and its commit log offset
        self._deleted: dict[Name, Place] = {}
        self._gone: set[Name] = set()
        self._acknowledged: set[tuple[str, int, int, Name]] = set()

    def read_sender(self, sender: int, lines: Iterable[str], *, sync: bool) -> None:
        """Take in what a sender said."""
        for line in lines:
            kind, *words = line.split()
            if kind == "i":
                first, count, _, topic = int(words[0]), int(words[1]), words[2], words[3]
                self._open.update({(sender, first + step): Sent(topic, sync) for step in range(count)})
            elif kind == "o":
                self._returned(sender, list(map(int, words)))

    def read_consumer(self, lines: Iterable[str]) -> None:
        """Take in what a consumer was about to acknowledge."""
        for line in lines:
            kind, *words = line.split()
            if kind == "k":
                topic, queue_id, queue_offset, sender, number = words
                self._acknowledged.add((topic, int(queue_id), int(queue_offset), (int(sender), int(number))))

    def cut(self, cut: PowerCut) -> None:
        """The power was cut under everything that was sent until now."""
        for sent in self._open.values():
            if sent.cut is None:
                sent.cut = cut

    def judge(self, recovered: Recovered, records: Sequence[tuple[int, ReferenceRecord]], deleted_to: int) -> list[str]:
        """Compare what is there after a finished recovery with what must be; return what is wrong.

        Commit log files below ``deleted_to`` were deleted, and may have come back.
        """
        self._figures.judgements += 1
        problems: list[str] = []
        found: dict[Name, tuple[Place, int]] = {}
        for offset, record in records:
            name = name_of(record.body)
            place = Place(record.topic, record.queue_id, record.queue_offset)
            if name is None:
                problems.append(f"the record at {offset} has a damaged body")
            else:
                problems += self._misplaced(name, place, found)
                found[name] = place, offset
        problems += self._missing(found, recovered, deleted_to)
        problems += self._overcommitted(found, recovered)
        self._settle(found, recovered)
        return problems

    def _settle(self, found: dict[Name, tuple[Place, int]], recovered: Recovered) -> None:
        """What recovery found is durable, what it did not find is gone; what was sent after it is still open."""
        later = {name for name, (_, offset) in found.items() if offset >= recovered.log_end}
        for name in self._there.keys() - found.keys():
            self._deleted[name] = self._there[name][0]
        self._gone.update(self._open.keys() - found.keys())
        self._open = {name: sent for name, sent in self._open.items() if name in later}
        for sent in self._open.values():
            sent.cut = None
        self._there = {name: where for name, where in found.items() if name not in later}

    def _returned(self, sender: int, words: list[int]) -> None:
        ns, first, count, queue_id, queue_offset, end = words
        for step in range(count):
            sent = self._open[sender, first + step]
            sent.acknowledged_ns, sent.batch_end = ns, end
            sent.place = Place(sent.topic, queue_id, queue_offset + step)

    def _misplaced(self, name: Name, place: Place, found: dict[Name, tuple[Place, int]]) -> list[str]:
        if name in found:
            return [f"message {name} is stored twice, at {found[name][0]} and {place}"]
        if name in self._gone:
            return [f"message {name} was lost before and has come back at {place}"]
        if name in self._there:
            told = self._there[name][0]
        elif name in self._deleted:
            told = self._deleted[name]  # the deletion was not durable
        elif name in self._open:
            told = self._open[name].place or place._replace(topic=self._open[name].topic)
        else:
            return [f"message {name} at {place} was never sent"]
        return [] if told == place else [f"message {name} is at {place} and was at {told}"]

    def _missing(self, found: dict[Name, tuple[Place, int]], recovered: Recovered, deleted_to: int) -> list[str]:
        problems = [
            f"message {name} was there after the last recovery and is lost"
            for name in self._there.keys() - found.keys()
            if self._there[name][1] >= deleted_to
        ]
        for name, sent in self._open.items():
            if sent.acknowledged_ns is None:
                self._figures.unknown += 1
            elif sent.cut is not None and (name not in found or found[name][1] < recovered.log_end):
                self._count(sent)
                if name not in found and sent.batch_end > deleted_to:
                    problems += self._lost(name, sent, sent.cut, recovered)
            elif name not in found:
                problems.append(f"message {name} was sent after recovery and is not there")
        return problems

    def _count(self, sent: Sent) -> None:
        if sent.sync:
            self._figures.acknowledged_sync += 1
        else:
            self._figures.acknowledged_async += 1

    def _lost(self, name: Name, sent: Sent, cut: PowerCut, recovered: Recovered) -> list[str]:
        assert sent.acknowledged_ns is not None
        age_ms = (cut.at_ns - sent.acknowledged_ns) / 1e6
        if age_ms < 0:
            self._figures.acknowledged_during_a_cut_and_lost += 1
            return []
        lost = f"{'SYNC' if sent.sync else 'ASYNC'} message {name}, {age_ms:.1f} ms old, is lost"
        if sent.sync:
            self._figures.lost_sync += 1
            return [lost]
        self._figures.lost_async += 1
        self._figures.oldest_lost_ms = max(self._figures.oldest_lost_ms, age_ms)
        problems = []
        if sent.batch_end <= cut.flushed_to:
            problems.append(
                f"{lost} although the log was flushed to {cut.flushed_to}, and it ended at {sent.batch_end}"
            )
        if age_ms > cut.window_ms:
            problems.append(f"{lost}, beyond the window of {cut.window_ms:.0f} ms")
        log_end = recovered.log_end if cut.log_end is None else cut.log_end
        if sent.batch_end <= log_end:
            problems.append(f"{lost} from the middle of the log, which ended at {log_end}")
        return problems

    def _overcommitted(self, found: dict[Name, tuple[Place, int]], recovered: Recovered) -> list[str]:
        problems = []
        by_place = {place: name for name, (place, _) in found.items()}
        for topic, queue_id, committed, low, high in recovered.groups:
            queue = f"queue {queue_id} of {topic}"
            if not low <= committed <= high:
                problems.append(f"{queue}: committed offset {committed} is not from {low} to {high}")
            for queue_offset in range(low, min(committed, high)):
                name = by_place.get(Place(topic, queue_id, queue_offset))
                if name is not None and (topic, queue_id, queue_offset, name) not in self._acknowledged:
                    problems.append(f"{queue}: {committed} is committed, {name} at {queue_offset} never acknowledged")
        return problems
