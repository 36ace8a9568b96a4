"""Fates: what handlers saw of each message, written down by themselves, and how far a group's counters may differ.

Before a handler returns or raises, it writes a line with one ``write`` into a journal that all processes append to: a
kill of any process leaves whole lines. So each message that a group has finished has evidence: a line, or a copy in the
log. A message with evidence of one fate was counted by it. A kill between the evidence and the acknowledgement leaves a
message with evidence of two, of which one was counted.

An attempt that raised is counted behind its line, and before its dead letter is stored. One that ended in a death is
counted behind the copy that is stored for it, and before the acknowledgement. So the attempts that a group counts as
failed lie between what stands behind such a count and what stands before it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rmqclient import ReceivedMessage
from rmqclient.metrics import GroupTotals

Seen = Literal["returned", "raised"]
Record = tuple[bool, str, int]
"""Whether it is of the retry topic, the message id, the queue offset."""


class Journal:
    """What the handlers of one process saw; opened at the first line, because a child must not share a position."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def write(self, group: str, message: ReceivedMessage, seen: Seen) -> None:
        """Write one line. It is there for every other process when this returns."""
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        is_retry, message_id, offset = record_of(message)
        os.write(self._descriptor, f"{group} {is_retry:d} {message_id} {offset} {seen}\n".encode())


def record_of(message: ReceivedMessage) -> Record:
    """Return which record a message is, as its handler and as the log has it."""
    return "RETRY_TOPIC" in message.properties, message.message_id, message.queue_offset


@dataclass(slots=True)
class Fates:
    """What the journal and the log say of the records that a group took from its topic, or from its retry topic."""

    returned: Counter[Record] = field(default_factory=Counter)
    """Calls that returned, of each record."""
    copied: set[Record] = field(default_factory=set)
    """Of which a copy for another attempt is in the log."""
    lettered: set[Record] = field(default_factory=set)
    """Of which a dead letter is in the log."""
    raised: Counter[Record] = field(default_factory=Counter)
    """Calls that raised, of each record."""

    def problems(self, name: str, records: Iterable[ReceivedMessage], totals: GroupTotals) -> Iterator[str]:
        """Yield what the counters of ``records``, which the group wanted and has finished, say otherwise."""
        wanted = set(map(record_of, records))
        kinds = {"handled": {*self.returned}, "retried": self.copied, "dead_lettered": self.lettered}
        evidence = Counter(record for found in kinds.values() for record in found & wanted)
        if without := wanted - evidence.keys():
            yield f"{name}: finished, and neither handled nor stored again: {sorted(without)[:3]}"
        for kind, found in kinds.items():
            sure = sum(evidence[record] == 1 for record in found & wanted)
            counted = getattr(totals, kind)
            if not sure <= counted <= len(found & wanted):
                yield f"{name}: {sure} to {len(found & wanted)} messages {kind}, counted as {totals}"
        if totals.handled + totals.retried + totals.dead_lettered != len(wanted):
            yield f"{name}: {len(wanted)} messages finished, counted as {totals}"

    def struck(self) -> int:
        """Return how many records were called again behind a line, or have evidence of two fates."""
        evidence = Counter((*self.returned, *self.copied, *self.lettered))
        called = self.returned + self.raised
        return len({record for seen in (evidence, called) for record, count in seen.items() if count > 1})


def wrong_failures(
    group: str, fates: Iterable[Fates], totals: Collection[GroupTotals], letters: int, copies: int
) -> Iterator[str]:
    """Yield how the attempts that a group counts as failed, in its topic and its retry topic, cannot be.

    ``letters`` and ``copies`` say how many records of either kind the log has.
    """
    raised = sum(each.raised.total() for each in fates)
    failed, retried = (sum(getattr(each, kind) for each in totals) for kind in ("failed", "retried"))
    if not letters + retried <= failed <= raised + copies:
        yield (
            f"{group}: {failed} attempts counted as failed; {raised} raised, which made {letters} dead letters, and "
            f"{copies} copies were stored, for {retried} messages"
        )


def fates_of(
    group: str,
    journal: Path,
    topic: list[ReceivedMessage],
    copies: list[ReceivedMessage],
    letters: list[ReceivedMessage],
) -> tuple[Fates, Fates]:
    """Return the fates of what a group took from a topic, and of what it took from its retry topic.

    A handler of the rig raises for good: a dead letter was made of a record that raised, a copy of one whose handler
    did not end. ``reconsume_times`` of either is larger than that of its record.
    """
    fates = Fates(), Fates()
    for line in journal.read_text(encoding="ascii").splitlines() if journal.exists() else ():
        of, is_retry, message_id, offset, seen = line.split()
        fate, record = fates[int(is_retry)], (bool(int(is_retry)), message_id, int(offset))
        if of == group and seen == "returned":
            fate.returned[record] += 1
        elif of == group:
            fate.raised[record] += 1
    last_letter, last_copy = _last(letters), _last(copies)
    for each in (*topic, *copies):
        record = record_of(each)
        fate = fates[record[0]]
        if record in fate.raised and last_letter.get(each.message_id, 0) > each.reconsume_times:
            fate.lettered.add(record)
        if last_copy.get(each.message_id, 0) > each.reconsume_times:
            fate.copied.add(record)
    return fates


def _last(records: Iterable[ReceivedMessage]) -> dict[str, int]:
    """Return the largest ``reconsume_times`` of each message."""
    found: dict[str, int] = {}
    for record in records:
        found[record.message_id] = max(record.reconsume_times, found.get(record.message_id, 0))
    return found
