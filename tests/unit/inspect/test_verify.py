"""Every invariant can be broken, and verify then says which one and where; of a whole store it says nothing."""

from __future__ import annotations

import inspect
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import orjson
import pytest

from rmqclient.store import Message, crash_points, layout, open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.errors import ConfigMismatch, StoreUnusable
from rmqclient.store.files.compacted_file import CompactedEntry, CompactedFile, CompactedWriter, path_of
from rmqclient.store.inspect import verify
from rmqclient.store.inspect.found import Problem
from rmqclient.store.inspect.queue_checks import not_growing
from rmqclient.store.inspect.reading import open_reader
from rmqclient.store.inspect.runtime_checks import bits_problem, move_problem
from rmqclient.store.inspect.verify import CHECKS
from rmqclient.store.log.consume_queue import Entry
from rmqclient.store.log.index_file import paths
from rmqclient.store.log.record import Record
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime import shared_state
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord
from tests.support.written import (
    COPIES,
    ORDERS,
    PAYMENTS,
    SMALL,
    acknowledge,
    appender_of,
    appending,
    copy_as_of_a_broker,
    copy_with_runtime_file,
    fill,
    message,
    overwrite,
    run,
    run_here,
    state_of_files,
    written_store,
)

FILE_BYTES = SMALL.commit_log_file_bytes
ENTRY = layout.CONSUME_QUEUE_ENTRY
OWNERS = (
    "rmqclient.store.log.commit_log",
    "rmqclient.store.log.consume_queue",
    "rmqclient.store.log.index_file",
    "rmqclient.store.files.compacted_file",
    "rmqclient.store.runtime.group_table",
    "rmqclient.store.runtime.shared_state",
    "rmqclient.store.waiting.timer_bits",
)
"""Modules that state invariants, by number, in their docstrings."""

RUNTIME_FILE_ALONE = {8, 9, 10, 13}
"""Invariants that are about nothing in a store without a runtime file to believe."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_store(tmp_path_factory.mktemp("written") / "store")


@pytest.fixture(params=COPIES)
def copy(written: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return COPIES[request.param](written, tmp_path / "copy")


# --- ways to break a store ------------------------------------------------------------------------


def records(root: Path) -> list[tuple[int, ReferenceRecord]]:
    return reference.read_commit_log(root)


def log_end(root: Path) -> int:
    offset, record = records(root)[-1]
    return offset + record.size


def log_path(root: Path, offset: int) -> Path:
    return root / "commitlog" / f"{offset - offset % FILE_BYTES:020d}"


def write_log(root: Path, offset: int, content: bytes) -> None:
    overwrite(log_path(root, offset), offset % FILE_BYTES, content)


def entry_path(root: Path, number: int) -> Path:
    per_file = SMALL.consume_queue_file_entries
    return root / "consumequeue" / ORDERS / "0" / f"{number // per_file * per_file * ENTRY.size:020d}"


def read_entry(root: Path, number: int) -> Entry:
    return Entry(*reference.read_consume_queue(root, ORDERS, 0)[number])


def write_entry(root: Path, number: int, content: bytes) -> None:
    overwrite(entry_path(root, number), number % SMALL.consume_queue_file_entries * ENTRY.size, content)


def pack(entry: Entry) -> bytes:
    return bytes(ENTRY.pack(*entry))


def orders_stored(root: Path) -> int:
    return sum(record.topic == ORDERS for _, record in records(root))


def write_word(root: Path, at: int, value: int) -> None:
    overwrite(root / shared_state.FILE_NAME, at, value.to_bytes(8, sys.byteorder))


def group_field(name: str) -> int:
    return shared_state.group_queue_slot_at(0) + layout.GROUP_QUEUE_SLOT.at[name]


def flip_a_byte_of_a_body(root: Path) -> None:
    offset, record = records(root)[70]
    assert record.body
    write_log(root, offset + 88, bytes((record.body[0] ^ 1,)))


def zero_a_blank_record(root: Path) -> None:
    write_log(root, end_of_first_file(root), bytes(8))


def shrink_a_blank_record(root: Path) -> None:
    end = end_of_first_file(root)
    write_log(root, end, (FILE_BYTES - end - 1).to_bytes(4, "big"))


def remove_a_log_file(root: Path) -> None:
    log_path(root, FILE_BYTES).unlink()


def cut_a_log_file_short(root: Path) -> None:
    os.truncate(log_path(root, FILE_BYTES), FILE_BYTES - 1)


def end_of_first_file(root: Path) -> int:
    return max(offset + record.size for offset, record in records(root) if offset < FILE_BYTES)


def store_another_offset_in_a_record(root: Path) -> None:
    offset, record = records(root)[70]
    elsewhere = reference.encode(replace(record, commit_log_offset=offset + 1))
    assert len(elsewhere) == record.size
    write_log(root, offset, elsewhere)


def leave_half_a_record_behind_the_end(root: Path) -> None:
    write_log(root, log_end(root), reference.encode(ReferenceRecord(topic=ORDERS, body=b"half"))[:50])


def set_a_byte_far_behind_the_end(root: Path) -> None:
    write_log(root, log_end(root) + 500, b"\x01")


def set_the_last_byte_of_the_next_file(root: Path) -> None:
    base = log_end(root) // FILE_BYTES * FILE_BYTES + FILE_BYTES
    log_path(root, base).write_bytes(bytes(FILE_BYTES - 1) + b"\x01")


def make_the_next_file_too_short(root: Path) -> None:
    base = log_end(root) // FILE_BYTES * FILE_BYTES + FILE_BYTES
    log_path(root, base).write_bytes(bytes(FILE_BYTES // 2))


def empty_an_entry(root: Path) -> None:
    write_entry(root, 30, bytes(ENTRY.size))


def empty_the_last_entry(root: Path) -> None:
    write_entry(root, orders_stored(root) - 1, bytes(ENTRY.size))


def remove_the_first_file_of_a_queue(root: Path) -> None:
    entry_path(root, 0).unlink()


def cut_the_last_file_of_a_queue_short(root: Path) -> None:
    os.truncate(entry_path(root, orders_stored(root) - 1), ENTRY.size)


def swap_two_entries(root: Path) -> None:
    first, second = read_entry(root, 30), read_entry(root, 31)
    write_entry(root, 30, pack(second) + pack(first))


def give_an_entry_another_size(root: Path) -> None:
    entry = read_entry(root, 30)
    write_entry(root, 30, pack(entry._replace(size=entry.size + 1)))


def give_an_entry_another_tag(root: Path) -> None:
    entry = read_entry(root, 30)
    write_entry(root, 30, pack(entry._replace(tags_code=entry.tags_code + 1)))


def point_to_a_record_of_another_topic(root: Path) -> None:
    low, high = read_entry(root, 29).commit_log_offset, read_entry(root, 31).commit_log_offset
    offset, payment = next(
        (offset, record) for offset, record in records(root) if low < offset < high and record.topic == PAYMENTS
    )
    write_entry(root, 30, pack(Entry(offset, payment.size, payment.tags_code)))


def point_to_the_next_record(root: Path) -> None:
    write_entry(root, 30, pack(read_entry(root, 31)))


def point_into_a_record(root: Path) -> None:
    entry = read_entry(root, 30)
    write_entry(root, 30, pack(entry._replace(commit_log_offset=entry.commit_log_offset + 1)))


def point_to_a_place_that_cannot_be(root: Path) -> None:
    write_entry(root, 30, pack(read_entry(root, 30)._replace(commit_log_offset=-1)))


def leave_an_entry_without_its_record(root: Path) -> None:
    write_entry(root, orders_stored(root), pack(Entry(log_end(root), 100, 0)))


def leave_bytes_far_behind_the_last_entry(root: Path) -> None:
    write_entry(root, orders_stored(root) + 3, b"\xff" * ENTRY.size)


def move_advance_to_below_the_committed_offset(root: Path) -> None:
    write_word(root, group_field("advance_to"), 19)


def move_advance_to_further_than_the_bitmap(root: Path) -> None:
    write_word(root, group_field("advance_to"), 20 + layout.ACK_WINDOW + 1)


def set_the_bit_of_a_finished_message(root: Path) -> None:
    overwrite(root / shared_state.FILE_NAME, group_field("acknowledged") + 19 // 8, bytes((1 << 19 % 8,)))


def flush_more_than_is_published(root: Path) -> None:
    write_word(root, layout.RUNTIME_HEADER.at["flushed_to"], log_end(root) + 1)


def publish_more_than_is_written(root: Path) -> None:
    write_word(root, layout.RUNTIME_HEADER.at["written_to"], log_end(root) - 1)


def set_the_bit_of_a_message_of_the_timer_that_is_not_there(root: Path) -> None:
    overwrite(root / shared_state.FILE_NAME, layout.TIMER_AT + layout.TIMER_HEADER.size + 1_000, b"\x10")


def move_the_timer_beyond_its_queue(root: Path) -> None:
    write_word(root, layout.TIMER_AT + layout.TIMER_HEADER.at["clearing_to"], 64)


def index_path(root: Path) -> Path:
    return paths(root)[0]


def change_index_entry(root: Path, number: int, field: str, value: int) -> None:
    path = index_path(root)
    at = layout.INDEX_HEADER.size + SMALL.index_slots * layout.INDEX_SLOT_SIZE + number * layout.INDEX_ENTRY.size
    content = path.read_bytes()[at : at + layout.INDEX_ENTRY.size]
    entry = layout.INDEX_ENTRY.read(content) | {field: value}
    overwrite(path, at, layout.INDEX_ENTRY.pack(*entry.values()))


def point_a_slot_behind_the_last_entry(root: Path) -> None:
    content = index_path(root).read_bytes()
    slots = range(layout.INDEX_HEADER.size, len(content), layout.INDEX_SLOT_SIZE)
    used = next(at for at in slots if any(content[at : at + layout.INDEX_SLOT_SIZE]))
    overwrite(index_path(root), used, (2**31 - 1).to_bytes(layout.INDEX_SLOT_SIZE, "big"))


def let_an_index_entry_follow_itself(root: Path) -> None:
    change_index_entry(root, 9, "previous", 9)


def give_an_index_entry_another_hash(root: Path) -> None:
    change_index_entry(root, 9, "key_hash", 12_345)


def point_an_index_entry_into_a_record(root: Path) -> None:
    change_index_entry(root, 9, "commit_log_offset", 100)


def write_compacted(root: Path, *, with_key: bool) -> tuple[Path, CompactedEntry]:
    """Make a compacted file of an order, as if the topic were compact; return its path and its entry."""
    queue = MessageQueue(ORDERS, 0)
    found = next(
        step.message
        for _, step in open_reader(root).steps()
        if isinstance(step, Record) and step.message.topic == ORDERS and bool(step.message.keys) is with_key
    )
    with CompactedWriter(root, queue) as writer:
        writer.add(found, 0)
        writer.finish(found.queue_offset + 1, 0)
    entry = CompactedFile(path_of(root, queue), queue).entry(0)
    assert entry is not None
    return path_of(root, queue), entry


def damage_both_headers_of_a_compacted_file(root: Path) -> None:
    path, _ = write_compacted(root, with_key=True)
    for at in (0, path.stat().st_size - 4):
        overwrite(path, at, b"\xff\xfe")


def damage_an_entry_of_a_compacted_file(root: Path) -> None:
    path, entry = write_compacted(root, with_key=True)
    overwrite(path, entry.position + entry.size + 7, b"\xff")


def damage_a_record_of_a_compacted_file(root: Path) -> None:
    path, entry = write_compacted(root, with_key=True)
    overwrite(path, entry.position + entry.size - 3, b"\xff")


def compact_a_record_without_a_key(root: Path) -> None:
    write_compacted(root, with_key=False)


@dataclass(frozen=True)
class Break:
    """One way to break a store: the invariant that no longer holds, and others that cannot hold then."""

    invariant: int
    apply: Callable[[Path], None]
    others: frozenset[int] = frozenset()


BREAKS = (
    Break(1, flip_a_byte_of_a_body, frozenset({6})),
    Break(1, zero_a_blank_record),
    Break(1, shrink_a_blank_record),
    Break(1, remove_a_log_file, frozenset({6})),
    Break(1, cut_a_log_file_short),
    Break(2, store_another_offset_in_a_record, frozenset({6})),
    Break(3, leave_half_a_record_behind_the_end),
    Break(3, set_a_byte_far_behind_the_end),
    Break(3, set_the_last_byte_of_the_next_file),
    Break(3, make_the_next_file_too_short),
    Break(4, empty_an_entry),
    Break(4, empty_the_last_entry),
    Break(4, remove_the_first_file_of_a_queue),
    Break(4, cut_the_last_file_of_a_queue_short),
    Break(5, swap_two_entries, frozenset({6})),
    Break(6, give_an_entry_another_size),
    Break(6, give_an_entry_another_tag),
    Break(6, point_to_a_record_of_another_topic),
    Break(6, point_to_the_next_record, frozenset({5})),
    Break(6, point_into_a_record),
    Break(6, point_to_a_place_that_cannot_be, frozenset({5})),
    Break(7, leave_an_entry_without_its_record),
    Break(7, leave_bytes_far_behind_the_last_entry),
    Break(8, move_advance_to_below_the_committed_offset),
    Break(8, move_advance_to_further_than_the_bitmap),
    Break(9, set_the_bit_of_a_finished_message),
    Break(10, flush_more_than_is_published),
    Break(10, publish_more_than_is_written),
    Break(11, point_a_slot_behind_the_last_entry),
    Break(11, let_an_index_entry_follow_itself),
    Break(12, give_an_index_entry_another_hash),
    Break(12, point_an_index_entry_into_a_record),
    Break(13, set_the_bit_of_a_message_of_the_timer_that_is_not_there),
    Break(13, move_the_timer_beyond_its_queue),
    Break(14, damage_both_headers_of_a_compacted_file),
    Break(14, damage_an_entry_of_a_compacted_file),
    Break(15, damage_a_record_of_a_compacted_file),
    Break(16, compact_a_record_without_a_key),
)


SEEN = [
    pytest.param(broken, view, id=f"{broken.invariant}-{broken.apply.__name__}-{view}")
    for broken in BREAKS
    for view in (list(COPIES)[:1] if broken.invariant in RUNTIME_FILE_ALONE else COPIES)
]


@pytest.mark.parametrize(("broken", "view"), SEEN)
def test_a_broken_invariant_is_found_with_its_number(broken: Break, view: str, written: Path, tmp_path: Path) -> None:
    root = COPIES[view](written, tmp_path / "copy")
    broken.apply(root)
    problems = verify.verify(root)
    assert {problem.invariant for problem in problems} == {broken.invariant, *broken.others}
    for problem in problems:
        assert problem.path.is_relative_to(root)
        assert problem.path.exists() or "missing" in problem.reason


def test_every_invariant_is_broken_by_a_test() -> None:
    assert {broken.invariant for broken in BREAKS} == set(CHECKS)


# --- whole stores ---------------------------------------------------------------------------------


def test_a_whole_store_has_no_problems(copy: Path) -> None:
    assert verify.verify(copy) == []


def test_the_copies_are_read_by_what_they_are_named_after(written: Path, tmp_path: Path) -> None:
    believed = {name: open_reader(make(written, tmp_path / name)).state is not None for name, make in COPIES.items()}
    assert believed == {"with its runtime file": True, "without": False, "as of a broker": False}


def test_verify_changes_nothing(copy: Path) -> None:
    before = state_of_files(copy)
    assert verify.verify(copy) == []
    assert state_of_files(copy) == before


def test_a_store_without_a_message_has_no_problems(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL, housekeeping=False) as store:
        assert verify.verify(tmp_path) == []
        store.topics.create(ORDERS, 3)
        assert verify.verify(tmp_path) == []
    assert verify.verify(tmp_path) == []


def test_damage_that_recovery_stepped_over_is_still_reported(written: Path, tmp_path: Path) -> None:
    root = copy_with_runtime_file(written, tmp_path / "copy")
    flip_a_byte_of_a_body(root)
    with open_store(root, housekeeping=False) as store:
        fill(store, 10)
        assert {problem.invariant for problem in verify.verify(root)} == {1, 6}
    assert {problem.invariant for problem in verify.verify(root)} == {1, 6}


def test_a_delivery_time_is_no_hash(tmp_path: Path) -> None:
    root = tmp_path / "store"
    record = ReferenceRecord(topic="SCHEDULE_TOPIC_XXXX", body=b"later", properties=b"TAGS\x01a", store_timestamp=5)
    one_record_store(root, record, tags_code=1_005)
    assert verify.verify(root) == []


@pytest.mark.parametrize("sys_flag", [0x4, 0xC])
def test_a_prepared_or_rolled_back_message_needs_no_entry(tmp_path: Path, sys_flag: int) -> None:
    root = tmp_path / "store"
    one_record_store(root, ReferenceRecord(topic=ORDERS, body=b"half", sys_flag=sys_flag), tags_code=None)
    assert verify.verify(root) == []


def test_a_record_without_any_consume_queue_is_missing_its_entry(tmp_path: Path) -> None:
    root = tmp_path / "store"
    one_record_store(root, ReferenceRecord(topic=ORDERS, body=b"message"), tags_code=None)
    assert [problem.invariant for problem in verify.verify(root)] == [4]


def test_an_address_in_consumequeue_ext_is_no_hash(tmp_path: Path) -> None:
    root = tmp_path / "store"
    one_record_store(root, ReferenceRecord(topic=ORDERS, body=b"message", properties=b"TAGS\x01a"), tags_code=-(2**63))
    assert verify.verify(root) == []


def test_pre_blank_entries_are_no_entries_in_a_log_that_begins_at_0(tmp_path: Path) -> None:
    root = tmp_path / "store"
    one_record_store(root, ReferenceRecord(topic=ORDERS, body=b"message", queue_offset=3), tags_code=0)
    assert verify.verify(root) == []


def test_zeros_below_the_durable_mark_are_damage_and_not_the_end(written: Path, tmp_path: Path) -> None:
    offset, record = records(written)[-9]
    for view, numbers in (("without", {1, 6}), ("as of a broker", {3, 7, 12})):
        root = COPIES[view](written, tmp_path / view)
        write_log(root, offset, bytes(record.size))
        assert {problem.invariant for problem in verify.verify(root)} == numbers


def test_zeros_before_a_file_of_records_are_damage_even_without_a_mark(written: Path, tmp_path: Path) -> None:
    root = copy_as_of_a_broker(written, tmp_path / "copy")
    offset, record = records(root)[30]
    write_log(root, offset, bytes(record.size))
    whole, entry = verify.verify(root)
    assert (whole.invariant, whole.path, whole.position) == (1, log_path(root, offset), offset % FILE_BYTES)
    assert f"{record.size} bytes" in whole.reason
    assert entry.invariant == 6


def test_a_queue_whose_older_messages_are_gone_has_no_problems(written: Path, tmp_path: Path) -> None:
    # Given a store of which retention removed the first file of the log, and as yet no entry
    root = copy_as_of_a_broker(written, tmp_path / "copy")
    log_path(root, 0).unlink()
    assert verify.verify(root) == []


def test_entries_before_a_first_message_may_be_pre_blank(written: Path, tmp_path: Path) -> None:
    # Given a store that was rebuilt after the first file of the log was removed
    root = copy_as_of_a_broker(written, tmp_path / "copy")
    log_path(root, 0).unlink()
    gone = sum(record.topic == ORDERS and offset < FILE_BYTES for offset, record in records(written))
    for number in range(gone):
        write_entry(root, number, pack(Entry(*layout.PRE_BLANK_ENTRY)))
    assert verify.verify(root) == []


def test_a_file_that_ends_without_a_blank_record_is_a_problem(tmp_path: Path) -> None:
    root = tmp_path / "store"
    record = ReferenceRecord(topic=ORDERS, body=b"x" * 100, sys_flag=0x4)
    size = len(reference.encode(record))
    (root / "commitlog").mkdir(parents=True)
    for base in (0, size):
        content = reference.encode(replace(record, commit_log_offset=base))
        (root / "commitlog" / f"{base:020d}").write_bytes(content)
    problems = verify.verify(root)
    assert problems == [Problem(1, root / "commitlog" / f"{0:020d}", size, "the file ends without a blank record")]


def one_record_store(root: Path, record: ReferenceRecord, *, tags_code: int | None) -> None:
    """Make a store as a broker would, of one record and, unless ``tags_code`` is None, its entry."""
    content = reference.encode(record, crc_property=False)
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(content.ljust(4096, b"\0"))
    if tags_code is not None:
        queue = root / "consumequeue" / record.topic / str(record.queue_id)
        queue.mkdir(parents=True)
        entries = pack(Entry(*layout.PRE_BLANK_ENTRY)) * record.queue_offset + pack(Entry(0, len(content), tags_code))
        (queue / f"{0:020d}").write_bytes(entries.ljust(200, b"\0"))


# --- beside other processes -----------------------------------------------------------------------


def test_a_store_that_another_process_appends_to_has_no_problems(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, SMALL, housekeeping=False):
        pass
    ends = set()
    with appending(root):
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            assert verify.verify(root) == []
            ends.add(open_reader(root).limit)
    assert len(ends) > 3, "the other process did not append"
    assert verify.verify(root) == []


APPEND_POINTS = [point for point in CrashPoint if point <= CrashPoint.APPEND_FINISHED]
ACK_POINTS = [point for point in CrashPoint if CrashPoint.ACK_LOCKED <= point <= CrashPoint.ACK_FINISHED]


@pytest.mark.crash
@pytest.mark.parametrize("point", APPEND_POINTS, ids=lambda point: point.name.lower())
def test_what_an_interrupted_append_left_is_no_problem(tmp_path: Path, point: CrashPoint) -> None:
    root = written_up_to_a_roll(tmp_path / "store")
    die_at(point, lambda: append_one(root))
    assert verify.verify(root) == []


@pytest.mark.crash
@pytest.mark.parametrize("point", ACK_POINTS, ids=lambda point: point.name.lower())
def test_what_an_interrupted_acknowledgement_left_is_no_problem(tmp_path: Path, point: CrashPoint) -> None:
    root = written_up_to_a_roll(tmp_path / "store")
    die_at(point, lambda: acknowledge(open_store(root, housekeeping=False), [0, 1, 2, 5]))
    assert verify.verify(root) == []


@pytest.mark.crash
def test_what_an_interrupted_delivery_left_is_no_problem(tmp_path: Path) -> None:
    root = written_up_to_a_roll(tmp_path / "store")
    with open_store(root, housekeeping=False) as store:
        appender_of(store).append(Message(ORDERS, b"later"), delay_level=1)
    die_at(CrashPoint.PROGRESS_ADVANCED, lambda: deliver_all(root))
    assert verify.verify(root) == []


@pytest.mark.crash
@pytest.mark.parametrize("point", [CrashPoint.PROGRESS_ADVANCED, CrashPoint.TIMER_CLEARING, CrashPoint.TIMER_CLEARED])
def test_what_an_interrupted_end_of_a_wait_left_is_no_problem(tmp_path: Path, point: CrashPoint) -> None:
    root = written_up_to_a_roll(tmp_path / "store")
    with open_store(root, housekeeping=False) as store:
        appender_of(store).append_batch([Message(ORDERS, b"later") for _ in range(64)], due_ms=1 << 41)
    assert verify.verify(root) == []
    die_at(point, lambda: end_waits(root))
    assert verify.verify(root) == []


def end_waits(root: Path) -> None:
    store = open_store(root, housekeeping=False)
    store.timer.now_ms = lambda: 1 << 42
    store.timer.look()
    store.timer.look()


def deliver_all(root: Path) -> None:
    store = open_store(root, housekeeping=False)
    store.schedule.now_ms = lambda: time.time_ns() // 1_000_000 + 2_000
    store.schedule.look()


def written_up_to_a_roll(root: Path) -> Path:
    """Make a store whose next message of 2,000 bytes goes to the next file."""
    with open_store(root, SMALL, housekeeping=False) as store:
        appender, number = appender_of(store), 0
        while store.state.published_to < FILE_BYTES - 2_000:
            appender.append(message(number))
            number += 1
    return root


def append_one(root: Path) -> None:
    appender_of(open_store(root, housekeeping=False)).append(Message(ORDERS, b"x" * 2_000))


def die_at(point: CrashPoint, action: Callable[[], object]) -> None:
    """Do something in a child process that is killed at a point."""
    child = os.fork()
    if child == 0:
        crash_points.arm(point)
        try:
            action()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"{point.name} was not reached"
    assert os.WTERMSIG(status) == signal.SIGKILL


# --- the list of invariants -----------------------------------------------------------------------


def stated(module: str) -> dict[int, str]:
    """Return the numbered invariants in the docstring of a module, each as one line."""
    docstring = inspect.getdoc(import_module(module)) or ""
    found = re.findall(r"^(\d+)\. (.+(?:\n {3,}.+)*)", docstring, flags=re.MULTILINE)
    return {int(number): " ".join(text.split()) for number, text in found}


def test_each_invariant_has_a_number_of_its_own_and_a_check() -> None:
    numbers = [number for module in OWNERS for number in stated(module)]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert sorted(CHECKS) == sorted(numbers)
    assert len(set(CHECKS.values())) == len(CHECKS)


def test_verify_lists_the_invariants_as_their_modules_state_them() -> None:
    assert stated("rmqclient.store.inspect.verify") == {
        number: text for module in OWNERS for number, text in stated(module).items()
    }


def test_each_check_says_its_number() -> None:
    assert {number: (inspect.getdoc(check) or "").partition(":")[0] for number, check in CHECKS.items()} == {
        number: str(number) for number in CHECKS
    }


# --- single rules ---------------------------------------------------------------------------------


def test_an_entry_is_compared_with_the_last_one_that_is_not_empty() -> None:
    entries = [Entry(10, 1, 0), Entry(0, 0, 0), Entry(10, 1, 0), Entry(9, 1, 0), Entry(11, 1, 0)]
    assert [number for number, _ in not_growing(enumerate(entries))] == [2, 3]


def test_a_move_may_take_the_whole_bitmap_and_no_more() -> None:
    assert move_problem(5, 5) == ""
    assert move_problem(5, 5 + layout.ACK_WINDOW) == ""
    assert "more than" in move_problem(5, 6 + layout.ACK_WINDOW)
    assert "below" in move_problem(5, 4)


def test_a_move_over_removed_messages_may_be_longer() -> None:
    assert move_problem(5, 9_000, min_offset=9_000) == ""
    assert "more than" in move_problem(5, 9_000, min_offset=9_000 - layout.ACK_WINDOW - 1)


def test_bits_may_be_set_for_every_message_there_is() -> None:
    every = (1 << layout.ACK_WINDOW) - 1
    assert bits_problem(5, every, 5 + layout.ACK_WINDOW) == ""
    assert "message 4 " in bits_problem(5, every, 4 + layout.ACK_WINDOW)
    assert bits_problem(5, 1 << 5, 6) == ""
    assert "message 5 " in bits_problem(6, 1 << 5, 6)


# --- the command ----------------------------------------------------------------------------------


def test_the_command_ends_with_0_and_says_nothing_of_a_whole_store(written: Path) -> None:
    done = run("verify", written)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_command_ends_with_6_and_prints_a_line_for_each_problem(written: Path, tmp_path: Path) -> None:
    root = copy_with_runtime_file(written, tmp_path / "copy")
    empty_an_entry(root)
    set_the_bit_of_a_finished_message(root)
    problems = verify.verify(root)
    done = run("verify", root)
    assert done.returncode == 6
    assert done.stdout.splitlines() == [str(problem) for problem in problems]
    assert done.stdout.startswith(f"4  {entry_path(root, 30)}, byte {30 * ENTRY.size}: entry 30: empty\n9  ")
    assert done.stderr == f"check failed: 2 problems in {root}\n"


def test_the_command_prints_problems_as_json(written: Path, tmp_path: Path) -> None:
    root = copy_with_runtime_file(written, tmp_path / "copy")
    empty_an_entry(root)
    done = run("verify", root, "-o", "jsonl")
    assert done.returncode == 6
    assert [orjson.loads(line) for line in done.stdout.splitlines()] == [
        {"invariant": 4, "path": str(entry_path(root, 30)), "position": 30 * ENTRY.size, "reason": "entry 30: empty"}
    ]


def test_the_command_ends_with_3_when_there_is_no_store(tmp_path: Path) -> None:
    done = run("verify", tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "holds no store" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_command_ends_with_2_when_it_is_wrong(written: Path) -> None:
    assert run("verify", written, "-o", "table").returncode == 2


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_the_help_names_the_exit_codes(command: str) -> None:
    done = run_here(command, "--help")
    assert done.exit_code == 0
    codes = done.stdout.partition("Exit codes:")[2]
    assert re.findall(r"^ +(\d+) ", codes, flags=re.MULTILINE) == ["0", "2", "3", "6"]


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnusable, match="not a directory"):
        verify.verify(tmp_path / "file")


def test_a_store_of_another_version_is_not_read(written: Path, tmp_path: Path) -> None:
    root = copy_with_runtime_file(written, tmp_path / "copy")
    settings = root / "store.json"
    settings.write_bytes(settings.read_bytes().replace(b'"format_version":1', b'"format_version":2'))
    with pytest.raises(ConfigMismatch):
        verify.verify(root)
    assert run_here("verify", root).exit_code == 3
