"""Ways to break a store, one for each invariant."""

from __future__ import annotations

from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.history.rings import Head, HistoryFile, Record, Row
from rmqclient.store.log.consume_queue import Entry
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord
from tests.support.written import ORDERS, SMALL, overwrite

FILE_BYTES = SMALL.commit_log_file_bytes
ENTRY = layout.CONSUME_QUEUE_ENTRY


def records(root: Path) -> list[tuple[int, ReferenceRecord]]:
    return reference.read_commit_log(root)


def log_path(root: Path, offset: int) -> Path:
    return root / "commitlog" / f"{offset - offset % FILE_BYTES:020d}"


def write_log(root: Path, offset: int, content: bytes) -> None:
    overwrite(log_path(root, offset), offset % FILE_BYTES, content)


def entry_path(root: Path, number: int) -> Path:
    per_file = SMALL.consume_queue_file_entries
    return root / "consumequeue" / ORDERS / "0" / f"{number // per_file * per_file * ENTRY.size:020d}"


def write_entry(root: Path, number: int, content: bytes) -> None:
    overwrite(entry_path(root, number), number % SMALL.consume_queue_file_entries * ENTRY.size, content)


def pack(entry: Entry) -> bytes:
    return bytes(ENTRY.pack(*entry))


def flip_a_byte_of_a_body(root: Path) -> None:
    offset, record = records(root)[70]
    assert record.body
    write_log(root, offset + 88, bytes((record.body[0] ^ 1,)))


def write_history(file: HistoryFile, count: int) -> Head:
    """Write so many records of ten seconds into a history, and return the head that counts them."""
    head = file.head() or Head(sequence=0, ended_ms=0, epoch=1)
    for _ in range(count):
        head.sequence += 1
        number = head.rings[0].number
        file.append(head, 0, Record.of(number, head.ended_ms, head.ended_ms + 10_000, {1: Row(handled=number)}))
        head.ended_ms += 10_000
        assert file.write_head(head)
    return head
