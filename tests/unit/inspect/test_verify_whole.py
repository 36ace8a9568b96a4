"""A store in order has no problem, also while other processes change it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.store import Message, crash_points, layout, open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.inspect import verify
from rmqclient.store.inspect.found import Problem, look
from rmqclient.store.inspect.reading import open_reader
from rmqclient.store.log.consume_queue import Entry
from rmqclient.store.message_queue import MessageQueue
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
    state_of_files,
)
from tests.unit.inspect.broken import FILE_BYTES, flip_a_byte_of_a_body, log_path, pack, records, write_entry, write_log


@pytest.fixture(params=COPIES)
def copy(written: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return COPIES[request.param](written, tmp_path / "copy")


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


def test_every_entry_of_a_whole_store_is_matched_by_the_walk_over_its_log(copy: Path) -> None:
    found = look(open_reader(copy))
    left = {queue: list(found.unmatched(queue, expected)) for queue, _, expected in found.queues() if expected}
    assert left == {MessageQueue(ORDERS, 0): [], MessageQueue(PAYMENTS, 0): [], MessageQueue(PAYMENTS, 1): []}


def test_what_follows_a_wrong_entry_is_not_matched(written: Path, tmp_path: Path) -> None:
    root, queue = copy_with_runtime_file(written, tmp_path / "copy"), MessageQueue(ORDERS, 0)
    write_entry(root, 5, pack(Entry(0, 0, 0)))
    found = look(open_reader(root))
    expected = found.entries[queue]
    assert found.log.matched[queue] == range(5)
    assert list(found.unmatched(queue, expected)) == [range(5, expected.stop)]
    assert list(found.unmatched(queue, expected, overlap=1)) == [range(4, expected.stop)]


def test_messages_in_another_order_than_their_numbers_are_a_problem(tmp_path: Path) -> None:
    root, queue = tmp_path / "store", tmp_path / "store" / "consumequeue" / ORDERS / "0"
    record = ReferenceRecord(topic=ORDERS, body=b"message")
    size = len(reference.encode(record, crc_property=False))
    order = [0, 2, 1, 3]
    records = [
        reference.encode(replace(record, queue_offset=number, commit_log_offset=place * size), crc_property=False)
        for place, number in enumerate(order)
    ]
    entries = [pack(Entry(order.index(number) * size, size, 0)) for number in range(4)]
    for path, parts, file_bytes in ((root / "commitlog", records, 4096), (queue, entries, 200)):
        path.mkdir(parents=True)
        (path / f"{0:020d}").write_bytes(b"".join(parts).ljust(file_bytes, b"\0"))
    assert [problem.invariant for problem in verify.verify(root)] == [5]


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


def test_a_store_that_another_process_appends_to_has_no_problems(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, SMALL, housekeeping=False):
        pass
    ends: set[int] = set()
    with appending(root):
        began = time.monotonic()
        while (waited := time.monotonic() - began) < 1.5 or (len(ends) <= 3 and waited < 60):
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
