"""Small stores with every kind of record, of which every byte is known, to be damaged and put right again.

The records come from the golden stores of a real broker, moved to other places and given our CRC or not, and from the
kernel. What each message must be is taken from the slow reference codec.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from rmqclient.store import (
    HALF_TOPIC,
    Message,
    MessageQueue,
    MessageStore,
    QueueGrant,
    ReceivedMessage,
    StoreConfig,
    TagSet,
    layout,
    open_store,
)
from rmqclient.store.runtime import shared_state
from rmqclient.store.settings import checkpoint
from rmqclient.store.settings.checkpoint import LowWater
from rmqclient.store.settings.store_settings import StoreSettings, write_store_settings
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord
from tests.support.stores import abandon

CONFIG = StoreConfig(
    commit_log_file_bytes=36_864, max_body_bytes=2_048, consume_queue_file_entries=24, index_slots=16, index_entries=256
)
FILE_BYTES = CONFIG.commit_log_file_bytes
SETTINGS = StoreSettings(FILE_BYTES, CONFIG.consume_queue_file_entries, CONFIG.index_slots, CONFIG.index_entries)
GROUP, FRESH = "billing", "fresh"
TAGS = ("TagA", "one", "two")
LATE = 5
"""First queue offset of the topic ``late``: the entries below are pre-blank."""

_GOLDEN = Path(__file__).parents[2] / "compat" / "golden"
_FILLER = 20_000

Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


@dataclass(slots=True)
class Specimen:
    """A store that nobody has open, and what must be read from it."""

    root: Path
    records: dict[int, ReferenceRecord] = field(default_factory=dict)
    """By commit log offset."""
    kinds: dict[str, int] = field(default_factory=dict)
    """Commit log offset of a record of each kind."""
    files: dict[Path, bytes] = field(default_factory=dict)
    """All files but the runtime file."""
    lock_ns: int = 0
    runtime: bytes = b""
    """The parts of the runtime file that are in use, back to back."""

    @property
    def messages(self) -> dict[Place, bytes]:
        """The bytes of the record of every message that has a place in a queue."""
        found = {}
        for offset, record in self.records.items():
            if record.in_a_queue:
                found[record.topic, record.queue_id, record.queue_offset] = self.log_bytes(offset, record.size)
        return found

    @property
    def queues(self) -> list[MessageQueue]:
        """Every queue with messages."""
        return sorted({MessageQueue(topic, queue_id) for topic, queue_id, _ in self.messages})

    @property
    def shared(self) -> Path:
        """Path of the runtime file."""
        return self.root / shared_state.FILE_NAME

    def log_path(self, offset: int) -> Path:
        """Return the commit log file that holds an offset."""
        return self.root / "commitlog" / f"{offset - offset % FILE_BYTES:020d}"

    def log_bytes(self, offset: int, size: int) -> bytes:
        """Return bytes of the commit log as they were written."""
        position = offset % FILE_BYTES
        return self.files[self.log_path(offset)][position : position + size]

    def keep(self) -> None:
        """Take the store as it stands for what it must be; call it once."""
        paths = [path for path in self.root.rglob("*") if path.is_file() and path != self.shared]
        self.files = {path: path.read_bytes() for path in paths}
        self.records = dict(reference.read_commit_log(self.root))
        self.lock_ns = (self.root / "lock").stat().st_mtime_ns
        if self.shared.exists():
            self.runtime = b"".join(self._used_parts())

    def restore(self) -> None:
        """Undo whatever was done to the store since :meth:`keep`; a new runtime file says that it is the original."""
        for path in sorted(self.root.rglob("*"), reverse=True):  # what is in a directory comes before it
            if path.is_dir():
                with suppress(OSError):  # one that is empty would go on to be a queue
                    path.rmdir()
            elif path not in self.files:
                path.unlink()
        for path, content in self.files.items():
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            elif path.read_bytes() != content:
                with path.open("r+b") as file:
                    file.write(content)
                    file.truncate()
        os.utime(self.root / "lock", ns=(self.lock_ns, self.lock_ns))
        if self.runtime:
            self._restore_runtime()

    def _restore_runtime(self) -> None:
        at = 0
        with self.shared.open("xb") as file:
            file.truncate(layout.RUNTIME_SIZE)
            for start, size in RUNTIME_PARTS:
                file.seek(start)
                file.write(self.runtime[at : at + size])
                at += size
            status = os.fstat(file.fileno())
            for name, value in (("device", status.st_dev), ("inode", status.st_ino)):
                file.seek(layout.RUNTIME_HEADER.at[name])
                file.write(value.to_bytes(8, sys.byteorder))

    def _used_parts(self) -> Iterator[bytes]:
        with self.shared.open("rb") as file:
            for start, size in RUNTIME_PARTS:
                file.seek(start)
                yield file.read(size)


RUNTIME_PARTS = (
    (0, layout.RUNTIME_HEADER.size),
    (layout.ARRIVAL_LANES_AT, layout.ARRIVAL_LANE_STRIDE),
    *((layout.QUEUE_TABLE_AT + slot * layout.QUEUE_SLOT.size, layout.QUEUE_SLOT.size) for slot in range(24)),
    *(
        (layout.GROUP_QUEUE_TABLE_AT + slot * layout.GROUP_QUEUE_SLOT.size, layout.GROUP_QUEUE_SLOT.size)
        for slot in range(24)
    ),
    (layout.MEMBER_TABLE_AT, layout.MEMBER_SLOT.size),
    (layout.WORKER_TABLE_AT, layout.WORKER_SLOT.size),
)
"""Start and size of what the specimens use of the runtime file."""


# --- how they are made ----------------------------------------------------------------------------


def make(root: Path, *, with_crc: bool = True, killed: bool = False) -> Specimen:
    """Write a store of two files of the log: ``with_crc`` as we write records, else as a 4.9 broker does.

    A ``killed`` one was left by its last process without closing, when half of it was flushed.
    """
    specimen = Specimen(root)
    _write_log(specimen, with_crc=with_crc)
    write_store_settings(root, SETTINGS)
    store = open_store(root, CONFIG, housekeeping=False)
    if with_crc:
        _append(store, specimen)
    store.flusher.flush_thorough()
    _acknowledge(store)
    store.offsets.persist()
    if killed:
        _append_plainly(store)
        abandon(store)
    else:
        store.close()
    (root / "config" / "delayOffset.json").write_text('{\n\t"offsetTable":{2:3,4:1\n\t}\n}', encoding="ascii")
    specimen.keep()
    return specimen


def scanned(root: Path, source: Specimen) -> Specimen:
    """Copy a store as after a reboot: everything is below the durable mark, and recovery looks at all of it."""
    shutil.copytree(source.root, root, ignore=shutil.ignore_patterns(shared_state.FILE_NAME))
    present, mark = checkpoint.read(root)
    assert mark is not None
    checkpoint.write(root, present, LowWater(mark.sequence + 1, mark.flushed_to, 0, 0))
    specimen = Specimen(root, kinds=source.kinds)
    specimen.keep()
    return specimen


def _write_log(specimen: Specimen, *, with_crc: bool) -> None:
    log = b""
    numbers: dict[tuple[str, int], Iterator[int]] = {("late", 0): count(LATE)}
    for kind, record in _records(dots=4 if with_crc else 24):
        number = numbers.setdefault((record.topic, record.queue_id), count()) if record.in_a_queue else count()
        placed = replace(record, queue_offset=next(number), commit_log_offset=len(log))
        encoded = reference.encode(placed, crc_property=with_crc)
        if len(log) % FILE_BYTES + len(encoded) + 8 > FILE_BYTES:
            left = FILE_BYTES - len(log) % FILE_BYTES
            specimen.kinds["blank record"] = len(log)
            log += left.to_bytes(4, "big") + bytes.fromhex("cbd43194") + bytes(left - 8)
            encoded = reference.encode(replace(placed, commit_log_offset=len(log)), crc_property=with_crc)
        specimen.kinds[kind] = len(log)
        log += encoded
    (specimen.root / "commitlog").mkdir(parents=True)
    for base in range(0, len(log), FILE_BYTES):
        content = log[base : base + FILE_BYTES].ljust(FILE_BYTES, b"\0")
        (specimen.root / "commitlog" / f"{base:020d}").write_bytes(content)


def _records(dots: int) -> Iterator[tuple[str, ReferenceRecord]]:
    clean, broker = _golden("store-4.9.8-clean"), _golden("store-4.9.8-broker-tx-retry-dlq")
    for number, record in enumerate(clean):
        yield _KINDS_OF_CLEAN.get(number, f"clean {number}"), record
    for number, record in enumerate(broker):
        yield _kind_of_topic(record, number), record
    # Alternating and of 128 bytes: a flipped bit makes an entry of one topic point to a record of the other.
    for number in range(30):
        for topic in ("left", "rght"):
            yield (
                f"{topic} {number}",
                ReferenceRecord(topic=topic, body=b"%s %03d %s" % (topic.encode(), number, b"." * dots)),
            )
    yield "filler", ReferenceRecord(topic="filler", body=b"f" * _FILLER)
    yield "empty body", ReferenceRecord(topic="late", properties=b"TAGS\x01one\x02")
    yield "no property", ReferenceRecord(topic="late", body=b"plain")
    for number in range(3):
        yield f"late {number}", ReferenceRecord(topic="late", body=b"late %d" % number, properties=b"TAGS\x01two\x02")
    yield "last", ReferenceRecord(topic="left", body=b"the last one", properties=b"KEYS\x01k\x02TAGS\x01one\x02")


def _kind_of_topic(record: ReferenceRecord, number: int) -> str:
    if record.sys_flag & 0xC == 0x8:
        return "committed transaction"
    kinds = {"RMQ_SYS_TRANS_HALF_TOPIC": "half transaction", "RMQ_SYS_TRANS_OP_HALF_TOPIC": "end of a transaction"}
    if record.property_map.get("REAL_TOPIC", "").startswith("%RETRY%"):
        return "retry"
    kinds["%DLQ%G1"] = "dead letter"
    return kinds.get(record.topic, f"broker {number}")


_KINDS_OF_CLEAN = {0: "tags, keys, properties", 1: "IPv6 hosts", 2: "delayed", 15: "delivered after its delay"}


def _golden(name: str) -> list[ReferenceRecord]:
    """Return the records of a golden store; their queue offsets and places are given anew."""
    with tarfile.open(_GOLDEN / f"{name}.tgz") as archive:
        members = [member for member in archive if "/commitlog/" in member.name and member.isfile()]
        contents = [archive.extractfile(member) for member in sorted(members, key=lambda member: member.name)]
        log = [content.read() for content in contents if content is not None]
    found = []
    for content in log:
        position = 0
        while (record := reference.decode(content, position)) is not None:
            if isinstance(record, ReferenceRecord):
                found.append(record)
            position += record.size
    return found


def _append(store: MessageStore, specimen: Specimen) -> None:
    appender = store.appenders.make(
        lambda topic: store.topics.create(topic, 2), lambda body: str(body).encode(), prepare=False
    )
    kinds = specimen.kinds
    kinds["appended, plain"] = appender.append(Message("ours", b"plain"), "key").commit_log_offset
    tagged = Message("ours", b"tagged", tags="one", keys=["k1", "k2"], properties={"colour": "blau"}, flag=7)
    kinds["appended, tags, keys, properties"] = appender.append(tagged, "key").commit_log_offset
    kinds["appended, empty body"] = appender.append(Message("ours", b"", tags="two"), "key").commit_log_offset
    batch = appender.append_batch([Message("ours", b"member %d" % number) for number in range(3)], "key")
    kinds["member of a batch"] = batch[1].commit_log_offset
    kinds["appended last"] = appender.append(Message("ours", b"the end", tags="one"), "key").commit_log_offset


def _append_plainly(store: MessageStore) -> None:
    appender = store.appenders.make(
        lambda topic: store.topics.create(topic, 2), lambda body: str(body).encode(), prepare=False
    )
    for number in range(6):
        appender.append(Message("ours", b"not flushed %d" % number, tags="two"), "key")


def _acknowledge(store: MessageStore) -> None:
    """Let a group finish some messages of ``left``, two of them out of order."""
    queue = MessageQueue("left", 0)
    slot = store.groups.find_or_add(GROUP, store.topics.slot(queue), 0)
    slot.restore(0, 0, 1)
    grant = store.grants.grant(slot, 1, TagSet(()))
    grant.take(64, layout.ACK_WINDOW)
    assert grant.acknowledge_offsets([*range(10), 14, 15])


# --- what a consumer gets -------------------------------------------------------------------------


@dataclass(slots=True)
class Delivered:
    """What one group got from all queues."""

    wrong: list[tuple[Place, str]] = field(default_factory=list)
    """Deliveries of something that is not the message of that place."""
    places: set[Place] = field(default_factory=set)
    damaged: int = 0
    """Messages that were stepped over and reported."""


def deliver(
    store: MessageStore, expected: dict[Place, bytes], group: str = FRESH, tags: tuple[str, ...] = ()
) -> Delivered:
    """Take whatever a group would get from all queues, and compare each with what was stored."""
    found = Delivered()
    for number, queue in enumerate(store.topics.all_queues()):
        low = store.topics.min_offset(queue)
        slot = store.groups.find_or_add(group, number, low)
        if group == FRESH:
            slot.restore(low, 0, 1)
        grant = store.grants.grant(slot, slot.load("epoch"), TagSet(tags))
        take_all(grant, expected, found)
    return found


def shown_topic(message: ReceivedMessage, topic: str) -> str:
    """Return what a message of a topic says of its topic: a half message the one that it is for."""
    return message.properties.get("REAL_TOPIC", topic) if topic == HALF_TOPIC else topic


def take_all(grant: QueueGrant, expected: dict[Place, bytes], found: Delivered) -> None:
    """Take all messages of one queue."""
    while messages := grant.take(32, layout.ACK_WINDOW):
        for message in messages:
            place = (grant.queue.topic, grant.queue.queue_id, message.queue_offset)
            if expected.get(place) != message.record() or message.topic != shown_topic(message, grant.queue.topic):
                found.wrong.append((place, f"{place} was delivered as {message!r} at {message.commit_log_offset}"))
            elif place in found.places:
                found.wrong.append((place, f"{place} was delivered twice"))
            found.places.add(place)
    found.damaged += len(grant.damaged)
    grant.damaged.clear()
