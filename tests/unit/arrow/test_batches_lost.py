"""Messages that are lost to a batch reader are told, and all others are read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient.arrow.batches import BatchReader
from rmqclient.store import MessageQueue
from rmqclient.store.inspect.view import LocalView
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord
from tests.support.written import SMALL, overwrite
from tests.unit.arrow.read_rows import (
    FULL,
    HandMade,
    Row,
    Rows,
    both,
    by_log,
    by_queues,
    end_of,
    everything,
    rows_of,
)


def file_of(root: Path, number: int) -> Path:
    return sorted((root / "commitlog").iterdir())[number]


def flip(root: Path, commit_log_offset: int, mask: int = 1) -> None:
    """Change bits of one byte of the log."""
    path = file_of(root, commit_log_offset // SMALL.commit_log_file_bytes)
    position = commit_log_offset - int(path.name)
    overwrite(path, position, bytes([path.read_bytes()[position] ^ mask]))


FIELDS = {
    "total_size": 3,
    "a larger total_size": 2,
    "magic": 4,
    "body_crc": 8,
    "queue_id": 15,
    "another queue_id": 12,
    "queue_offset": 27,
    "a far queue_offset": 24,
    "commit_log_offset": 30,
    "sys_flag": 39,
    "a host that is IPv6": 39,
    "store_timestamp": 60,
    "body_size": 87,
    "body": 90,
}


@both
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("number", [0, 77, 179])
def test_a_damaged_record_is_told_and_all_others_are_read(
    read: Callable[..., list[Row]], root: Path, expected: Rows, field: str, number: int
) -> None:
    damaged = expected[number]
    flip(root, damaged["commit_log_offset"] + FIELDS[field], 0x10 if "IPv6" in field else 1)
    lost: list[str] = []
    assert read(LocalView(root), on_lost=lost.append) == expected[:number] + expected[number + 1 :]
    (sentence,) = lost
    place = f"{damaged['topic']}, queue {damaged['partition']}, offset {damaged['offset']}"
    assert sentence.startswith(f"{place}, at {damaged['commit_log_offset']} of the commit log: cannot be read: ")


@both
def test_a_damaged_topic_or_property_is_told(read: Callable[..., list[Row]], root: Path, expected: Rows) -> None:
    log = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
    number = 40
    at = log.index(expected[number]["topic"].encode(), expected[number]["commit_log_offset"])
    flip(root, at)  # still a name, of no topic that is wanted
    flip(root, log.index(b"UNIQ_KEY", expected[90]["commit_log_offset"]) + 12)
    lost: list[str] = []
    rows = read(LocalView(root), on_lost=lost.append)
    assert rows == [row for place, row in enumerate(expected) if place not in {number, 90}]
    assert len(lost) == 2


@both
def test_losing_a_message_can_end_the_reading(read: Callable[..., list[Row]], root: Path, expected: Rows) -> None:
    flip(root, expected[5]["commit_log_offset"] + 90)

    def fail(sentence: str) -> None:
        raise LookupError(sentence)

    with pytest.raises(
        LookupError, match=r"offset \d+, at \d+ of the commit log: cannot be read: the CRC of the record"
    ):
        read(LocalView(root), on_lost=fail)


@both
@pytest.mark.parametrize("gone", [0, 1, 2])
@pytest.mark.parametrize("is_shortened", [False, True])
def test_a_removed_or_shortened_file_is_told_and_all_others_are_read(
    read: Callable[..., list[Row]], root: Path, expected: Rows, gone: int, is_shortened: bool
) -> None:
    view = LocalView(root)
    before, end = everything(view), end_of(view)
    path = file_of(root, gone)
    removed = range(int(path.name), int(path.name) + SMALL.commit_log_file_bytes)
    if is_shortened:
        os.truncate(path, 4_096)
    else:
        path.unlink()
    lost: list[str] = []
    reader = BatchReader(view, FULL, on_lost=lost.append)
    rows = []
    if read is by_log:
        rows = rows_of(reader.read_log(0, end, before), FULL)
    else:
        for queue, offsets in before.items():
            rows += rows_of(reader.read_queue(queue, offsets.start, offsets.stop), FULL)
        rows.sort(key=lambda row: row["commit_log_offset"])
    assert rows == [row for row in expected if row["commit_log_offset"] not in removed]
    sentences = []
    for queue in before:
        numbers = [
            row["offset"]
            for row in expected
            if MessageQueue(row["topic"], row["partition"]) == queue and row["commit_log_offset"] in removed
        ]
        sentences.append(f"{queue.topic}, queue {queue.queue_id}, offsets {numbers[0]} to {numbers[-1]}, at ")
    assert len(lost) == len(sentences)
    assert all(sentence.startswith(begin) for sentence, begin in zip(sorted(lost), sorted(sentences), strict=True))
    why = "the file has 4096 bytes instead of 36864" if is_shortened else "the file no longer exists"
    assert all(why in sentence for sentence in lost)


@both
def test_what_retention_removes_while_it_is_read_is_told(
    read: Callable[..., list[Row]], root: Path, expected: Rows
) -> None:
    # Given a reading that stands within the first file
    view = LocalView(root)
    queue, stop = MessageQueue("orders", 0), len(LocalView(root).offsets(MessageQueue("orders", 0)))
    orders = [row for row in expected if row["topic"] == "orders"]
    lost: list[str] = []
    reader = BatchReader(view, FULL, on_lost=lost.append, rows=10)
    reading = (
        reader.read_log(0, end_of(view), {queue: range(stop)}) if read is by_log else reader.read_queue(queue, 0, stop)
    )
    found = rows_of(iter([next(reading)]), FULL)
    # When that is removed, and its blocks are let go of
    file_of(root, 0).unlink()
    view.release()
    found += rows_of(reading, FULL)
    # Then each message is either read or told
    told = {int(number) for sentence in lost for number in numbers_in(sentence)}
    assert {row["offset"] for row in found}.isdisjoint(told)
    assert {row["offset"] for row in found} | told == set(range(stop))
    assert found == [row for row in orders if row["offset"] not in told]
    assert told == {row["offset"] for row in orders[10:] if row["commit_log_offset"] < SMALL.commit_log_file_bytes}


def numbers_in(sentence: str) -> range:
    """Return the queue offsets of a sentence."""
    found = re.search(r", offsets? (\d+)(?: to (\d+))?[,:]", sentence)
    assert found is not None
    return range(int(found[1]), int(found[2] or found[1]) + 1)


@both
def test_entries_that_are_gone_are_told(read: Callable[..., list[Row]], root: Path, expected: Rows) -> None:
    view = LocalView(root)
    before, end = everything(view), end_of(view)
    (file, *_) = sorted((root / "consumequeue" / "orders" / "0").iterdir())
    file.unlink()
    file_of(root, 0).unlink()
    lost: list[str] = []
    reader = BatchReader(LocalView(root), FULL, on_lost=lost.append)
    queue = MessageQueue("orders", 0)
    if read is by_log:
        rows = rows_of(reader.read_log(0, end, {queue: before[queue]}), FULL)
    else:
        rows = rows_of(reader.read_queue(queue, 0, before[queue].stop), FULL)
    told = {number for sentence in lost for number in numbers_in(sentence)}
    assert told.isdisjoint(row["offset"] for row in rows)
    assert told | {row["offset"] for row in rows} == set(before[queue])
    assert all(row in expected for row in rows)


@both
def test_an_entry_that_points_elsewhere_does_not_bring_another_message(
    read: Callable[..., list[Row]], root: Path, expected: Rows
) -> None:
    path = min((root / "consumequeue" / "orders" / "0").iterdir())
    entries = path.read_bytes()
    overwrite(path, 20 * 10, entries[20 * 12 : 20 * 13])  # of a message that stands two further on
    overwrite(path, 20 * 20, bytes(20))
    overwrite(path, 20 * 30, reference.ENTRY.pack(1 << 50, 200, 0))
    overwrite(path, 20 * 40, reference.ENTRY.pack(0, 2**31 - 1, 0))
    lost: list[str] = []
    view = LocalView(root)
    rows = read(view, on_lost=lost.append)
    told = {number for sentence in lost for number in numbers_in(sentence)}
    orders = [row["offset"] for row in rows if row["topic"] == "orders"]
    assert len(rows) + len(told) == len(expected)
    assert all(row in expected for row in rows)
    assert told | set(orders) == set(range(120))
    if read is by_queues:
        assert told == {10, 20, 30, 40}


@both
@pytest.mark.parametrize("at", [12, 15, 20, 27])
def test_a_damaged_number_in_a_brokers_record_is_noticed(read: Callable[..., list[Row]], at: int) -> None:
    # Given records with a CRC of the body only: nothing in them protects queue id and queue offset
    view = HandMade([ReferenceRecord(topic="t", body=b"%d" % number) for number in range(30)], crc=False)
    view.content[view.records[10].commit_log_offset + at] ^= 1
    lost: list[str] = []
    rows = read(view, on_lost=lost.append)
    assert [row["value"] for row in rows] == [b"%d" % number for number in range(30) if number != 10]
    assert [numbers_in(sentence) for sentence in lost] == [range(10, 11)]
