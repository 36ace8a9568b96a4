"""Rows read from a store by the two ways of a batch reader, and the rows that the oracle expects."""

from __future__ import annotations

import socket
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from rmqclient.arrow.batches import BatchReader
from rmqclient.arrow.columns import METADATA, PROPERTIES, USUAL, schema_of
from rmqclient.store import MessageQueue
from rmqclient.store.inspect.view import LogPart, View
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord

FULL = schema_of(USUAL | PROPERTIES | METADATA)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = dict[str, Any]


def text_of(host: bytes, port: int) -> str:
    return f"{socket.inet_ntop(socket.AF_INET6 if len(host) == 16 else socket.AF_INET, host)}:{port}"


def first(record: ReferenceRecord, name: str) -> str | None:
    """The first property of a name, empty or not."""
    pairs = [pair.split("\x01", 1) for pair in record.properties.decode().split("\x02") if "\x01" in pair]
    return next((value for other, value in pairs if other == name), None)


def row_of(record: ReferenceRecord) -> Row:
    """Return a record as the source gives it, by the oracle."""
    unique = first(record, "UNIQ_KEY")
    return {
        "key": first(record, "KEYS"),
        "value": record.opened_body,
        "topic": record.topic,
        "partition": record.queue_id,
        "offset": record.queue_offset,
        "timestamp": EPOCH + timedelta(milliseconds=record.store_timestamp),
        "born_timestamp": EPOCH + timedelta(milliseconds=record.born_timestamp),
        "tags": first(record, "TAGS"),
        "properties": {name: value for name, value in record.property_map.items() if name != "__CRC32#"},
        "commit_log_offset": record.commit_log_offset,
        "size": record.size,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "reconsume_times": record.reconsume_times,
        "born_host": text_of(record.born_host, record.born_port),
        "store_host": text_of(record.store_host, record.store_port),
        "msg_id": unique
        if unique is not None
        else reference.offset_message_id(record.store_host, record.store_port, record.commit_log_offset),
        "broker_name": "",
    }


def rows_of(read: Iterator[pa.RecordBatch], schema: pa.Schema) -> list[Row]:
    """Return the rows of batches, each of which is whole and has exactly this schema."""
    rows: list[Row] = []
    for batch in read:
        batch.validate(full=True)
        assert batch.schema.equals(schema, check_metadata=True)
        assert batch.num_rows > 0
        rows += batch.to_pylist()
    for row in rows:
        if "properties" in row:
            names = [name for name, _ in row["properties"]]
            assert len(set(names)) == len(names)
            row["properties"] = dict(row["properties"])
    return rows


def everything(view: View) -> dict[MessageQueue, range]:
    return {queue: view.offsets(queue) for queue in view.queues()}


def never(sentence: str) -> None:
    raise AssertionError(f"lost: {sentence}")


def by_queues(view: View, schema: pa.Schema = FULL, on_lost: Callable[[str], None] = never, **limits: Any) -> list[Row]:
    """Read every queue by its entries; return the rows in the order of the log, if they tell where they stand."""
    reader = BatchReader(view, schema, on_lost=on_lost, **limits)
    rows = []
    for queue, offsets in everything(view).items():
        rows += rows_of(reader.read_queue(queue, offsets.start, offsets.stop), schema)
    return sorted(rows, key=lambda row: row["commit_log_offset"]) if "commit_log_offset" in schema.names else rows


def by_log(view: View, schema: pa.Schema = FULL, on_lost: Callable[[str], None] = never, **limits: Any) -> list[Row]:
    """Read every queue along the log."""
    log = view.log_range()
    reader = BatchReader(view, schema, on_lost=on_lost, **limits)
    return rows_of(reader.read_log(log.start, end_of(view), everything(view)), schema)


def end_of(view: View) -> int:
    """Where the last record ends that has an entry."""
    end = view.log_range().start
    for queue, offsets in everything(view).items():
        for number in offsets[-1:]:
            offset, size, _ = reference.ENTRY.unpack(view.entries(queue, number, number + 1))
            end = max(end, offset + size)
    return end


both = pytest.mark.parametrize("read", [by_queues, by_log])


class Windows:
    """A view that gives no more of the log than what is asked for, like one of files elsewhere."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.log_file_bytes = view.log_file_bytes
        self.entries_per_file = view.entries_per_file
        self.queues, self.offsets, self.ranges, self.entries = view.queues, view.offsets, view.ranges, view.entries
        self.log_range, self.release = view.log_range, view.release
        self.asked: list[int] = []

    def log(self, commit_log_offset: int, size: int) -> LogPart:
        content, base, file_end = self._view.log(commit_log_offset, size)
        self.asked.append(size)
        at = commit_log_offset - base
        return LogPart(bytes(memoryview(content)[at : at + size]), commit_log_offset, file_end)


class HandMade:
    """A view of records that no producer would write, in files of some size."""

    def __init__(self, records: Sequence[ReferenceRecord], *, crc: bool = True, file_bytes: int = 8_192) -> None:
        self.log_file_bytes = file_bytes
        self.entries_per_file = 8
        self.records: list[ReferenceRecord] = []
        self._entries: dict[MessageQueue, list[bytes]] = defaultdict(list)
        self.content = bytearray()
        for record in records:
            self._append(record, crc)
        self.end = len(self.content)
        self.content += bytes(-len(self.content) % file_bytes)

    def _append(self, record: ReferenceRecord, crc: bool) -> None:
        queue = self._entries[MessageQueue(record.topic, record.queue_id)]
        number = len(queue) if record.in_a_queue else 0
        size = len(reference.encode(record, crc))
        left = self.log_file_bytes - len(self.content) % self.log_file_bytes
        if size + 8 > left:
            self.content += (left.to_bytes(4, "big") + bytes.fromhex("cbd43194")).ljust(left, b"\0")
        placed = replace(record, queue_offset=number, commit_log_offset=len(self.content), size=size)
        self.content += reference.encode(placed, crc)
        self.records.append(placed)
        if record.in_a_queue:
            queue.append(reference.ENTRY.pack(placed.commit_log_offset, size, placed.tags_code))

    def queues(self) -> list[MessageQueue]:
        return sorted(queue for queue, entries in self._entries.items() if entries)

    def offsets(self, queue: MessageQueue) -> range:
        return range(len(self._entries[queue]))

    def ranges(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, range]:
        return {queue: self.offsets(queue) for queue in queues}

    def log_range(self) -> range:
        return range(self.end)

    def entries(self, queue: MessageQueue, first: int, stop: int) -> bytes:
        file_end = first - first % self.entries_per_file + self.entries_per_file
        return b"".join(self._entries[queue][first : min(stop, file_end)])

    def log(self, commit_log_offset: int, size: int) -> LogPart:  # noqa: ARG002
        base = commit_log_offset - commit_log_offset % self.log_file_bytes
        file_end = base + self.log_file_bytes
        return LogPart(memoryview(self.content)[base:file_end], base, file_end)

    def release(self) -> None:
        pass


class Rows(list[Row]):
    """Rows that say little of themselves when a test fails."""

    def __repr__(self) -> str:
        return f"<{len(self)} rows>"


TEXT = st.text(st.characters(exclude_characters="\x00\x01\x02", exclude_categories=["Cs"]), max_size=12)
NAMES = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "KEYSX", "TAG", "a", "ключ", "__CRC32#", ""]) | TEXT
RECORDS = st.builds(
    ReferenceRecord,
    topic=st.sampled_from(["t", "orders", "%RETRY%billing", "%DLQ%billing", "x" * 127]),
    queue_id=st.integers(0, 2) | st.just(2**31 - 1),
    body=st.binary(max_size=40) | st.builds(bytes, st.integers(0, 3_000)),
    properties=st.lists(st.tuples(NAMES, TEXT), max_size=6).map(
        lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode()
    ),
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.sampled_from([0, 0x1, 0x8]),
    born_timestamp=st.integers(0, 2**42),
    store_timestamp=st.integers(0, 2**42),
    born_host=st.binary(min_size=4, max_size=4),
    born_port=st.integers(0, 65_535),
    reconsume_times=st.integers(0, 2**31 - 1),
)


@st.composite
def records(draw: st.DrawFn) -> ReferenceRecord:
    record = draw(RECORDS)
    flags = record.sys_flag
    hosts: dict[str, Any] = {}
    for bit, name in ((0x10, "born_host"), (0x20, "store_host")):
        if draw(st.booleans()):
            flags |= bit
            hosts[name] = draw(st.binary(min_size=16, max_size=16) | st.just(bytes(15) + b"\1"))
    body = zlib.compress(record.body) if flags & 0x1 else record.body
    return replace(record, body=body, sys_flag=flags, **hosts)
