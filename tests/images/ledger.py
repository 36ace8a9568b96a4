"""What was sent to a store, and what it promised, by moments: the truth that images are compared with.

Records are learned from the log itself while it is written, with the reference codec, and only if they are what was
sent: the body of a message depends on its number alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rmqclient.store import MessageQueue, SendResult
from tests.images.timeline import Steps
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord

_ONE = len(b"message 00000000;")

GroupQueue = tuple[str, MessageQueue]


def body_of(number: int, size: int) -> bytes:
    """Return the body of a message: at least its number, and at least ``size`` bytes."""
    text = b"message %08d;" % number
    return text * -(-max(size, 1) // len(text))


@dataclass(slots=True)
class Sent:
    """A message as it was handed to the store."""

    topic: str
    body: bytes
    tag: str | None
    keys: tuple[str, ...]


@dataclass(slots=True)
class Known:
    """A record that was seen whole in the log."""

    start: int
    content: bytes
    queue: MessageQueue
    queue_offset: int
    entry: bytes
    """Its consume queue entry, as the reference writes it."""
    keys: tuple[str, ...]
    """What it is indexed by: its unique key first."""
    acknowledged: bool = False
    """Its send returned."""
    replaced_at: int | None = None
    """Moment from which something else stands there: the send had not returned, and was undone."""

    @property
    def end(self) -> int:
        """First byte behind it."""
        return self.start + len(self.content)


@dataclass(slots=True)
class Ledger:
    """One life of a store, from the image that it began with to its end."""

    file_bytes: int
    sent: dict[int, Sent]
    """By number; shared by all lives."""
    known: dict[int, list[Known]] = field(default_factory=dict)
    """By commit log offset; several where an append was undone."""
    log: list[Known] = field(default_factory=list)
    """The records that stand in the log now."""
    promised: Steps[int] = field(default_factory=lambda: Steps(0))
    """Commit log offset below which everything was declared durable."""
    ceilings: dict[GroupQueue, Steps[int]] = field(default_factory=dict)
    """How far a group has come."""
    floors: dict[GroupQueue, Steps[int]] = field(default_factory=dict)
    """How far it was durably noted to have come."""
    topics: Steps[tuple[str, ...]] = field(default_factory=lambda: Steps(()))
    """Topics whose making had returned."""
    is_made: Steps[bool] = field(default_factory=lambda: Steps(False))
    """Whether the first opening had returned, so that the fixed settings are on the disk."""
    faults: list[str] = field(default_factory=list)
    """What was wrong before any power cut."""

    @property
    def end(self) -> int:
        """First byte behind the last record."""
        return self.log[-1].end if self.log else 0

    def learn(self, moment: int, files: dict[str, bytes]) -> None:
        """Learn from the commit log files, by name, as they stand at a moment."""
        content = {int(name): content for name, content in files.items()}
        while self.log and not self._stands(content, self.log[-1]):
            undone = self.log.pop()
            undone.replaced_at = moment
            if undone.acknowledged:
                self.faults.append(f"the record at {undone.start} went without a power cut, and its send had returned")
        for start, record in walk(content, self.end, self.file_bytes):
            known = self._recognise(start, record, content)
            if known is None:
                break
            self.add(known)

    def add(self, known: Known) -> None:
        """Enter a record behind the last one."""
        self.known.setdefault(known.start, []).append(known)
        self.log.append(known)

    def acknowledge(self, results: Iterable[SendResult]) -> None:
        """Enter what sends have returned."""
        for result in results:
            known = next(known for known in reversed(self.log) if known.start <= result.commit_log_offset)
            told = (result.commit_log_offset, result.commit_log_end, result.queue.queue_id, result.queue_offset)
            if told != (known.start, known.end, known.queue.queue_id, known.queue_offset):
                self.faults.append(f"a send returned {told}, and at {known.start} stands another record")
            known.acknowledged = True

    def promise(self, moment: int, flushed_to: int) -> None:
        """Enter how far the log was declared durable."""
        self.promised.note(moment, max(flushed_to, self.promised.last))

    def after_power_cut(self, moment: int, found: list[Known]) -> Ledger:
        """Return the ledger of the life that begins with an image, in which these records were found."""
        life = Ledger(self.file_bytes, self.sent)
        for known in found:
            life.add(Known(known.start, known.content, known.queue, known.queue_offset, known.entry, known.keys, True))
        life.promised = Steps(self.promised.at(moment))
        life.ceilings = {key: Steps(steps.at(moment)) for key, steps in self.ceilings.items()}
        life.floors = {key: Steps(steps.at(moment)) for key, steps in self.floors.items()}
        life.topics = Steps(self.topics.at(moment))
        life.is_made = Steps(self.is_made.at(moment))
        return life

    def _stands(self, content: dict[int, bytes], known: Known) -> bool:
        base = known.start - known.start % self.file_bytes
        at = known.start - base
        return content.get(base, b"")[at : at + len(known.content)] == known.content

    def _recognise(self, start: int, record: ReferenceRecord, content: dict[int, bytes]) -> Known | None:
        if not record.has_crc or record.commit_log_offset != start or not record.body[:_ONE].startswith(b"message "):
            return None
        sent = self.sent[int(record.body[8:16])]
        properties = record.property_map
        keys = tuple(properties.get("KEYS", "").split())
        if (record.topic, record.body, properties.get("TAGS"), keys) != (sent.topic, sent.body, sent.tag, sent.keys):
            self.faults.append(f"the record at {start} is not what was sent")
        base = start - start % self.file_bytes
        return Known(
            start,
            content[base][start - base : start - base + record.size],
            MessageQueue(record.topic, record.queue_id),
            record.queue_offset,
            reference.ENTRY.pack(start, record.size, record.tags_code),
            (properties["UNIQ_KEY"], *keys),
        )


def walk(content: dict[int, bytes], start: int, file_bytes: int) -> Iterator[tuple[int, ReferenceRecord]]:
    """Yield the valid records from ``start`` on, over blank records, up to the first thing that is neither."""
    while True:
        base = start - start % file_bytes
        found = reference.decode(content.get(base, b""), start - base)
        if isinstance(found, reference.Blank):
            start = base + file_bytes
        elif found is None:
            return
        else:
            yield start, found
            start += found.size
