"""Every invariant can be broken, and verify then says which one and where; of a whole store it says nothing."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import orjson
import pytest

from rmqclient.store import layout
from rmqclient.store.errors import ConfigMismatch, StoreUnusable
from rmqclient.store.files.compacted_file import CompactedEntry, CompactedFile, CompactedWriter, path_of
from rmqclient.store.history.rings import HistoryFile
from rmqclient.store.inspect import verify
from rmqclient.store.inspect.queue_checks import not_growing
from rmqclient.store.inspect.reading import open_reader
from rmqclient.store.inspect.runtime_checks import bits_problem, move_problem
from rmqclient.store.inspect.verify import CHECKS
from rmqclient.store.log.consume_queue import Entry
from rmqclient.store.log.index_file import paths
from rmqclient.store.log.record import Record
from rmqclient.store.marks import MARKS_FILE
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime import shared_state
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord
from tests.support.written import (
    COPIES,
    ORDERS,
    PAYMENTS,
    SMALL,
    copy_with_runtime_file,
    overwrite,
    run,
    run_here,
)
from tests.unit.inspect.broken import (
    ENTRY,
    FILE_BYTES,
    entry_path,
    flip_a_byte_of_a_body,
    log_path,
    pack,
    records,
    write_entry,
    write_history,
    write_log,
)

OWNERS = (
    "rmqclient.store.log.commit_log",
    "rmqclient.store.log.consume_queue",
    "rmqclient.store.log.index_file",
    "rmqclient.store.files.compacted_file",
    "rmqclient.store.runtime.group_table",
    "rmqclient.store.runtime.shared_state",
    "rmqclient.store.waiting.timer_bits",
    "rmqclient.store.history.rings",
    "rmqclient.store.marks",
)
"""Modules that state invariants, by number, in their docstrings."""

RUNTIME_FILE_ALONE = {8, 9, 10, 13, 17}
"""Invariants that are about nothing in a store without a runtime file to believe."""


def log_end(root: Path) -> int:
    offset, record = records(root)[-1]
    return offset + record.size


def read_entry(root: Path, number: int) -> Entry:
    return Entry(*reference.read_consume_queue(root, ORDERS, 0)[number])


def orders_stored(root: Path) -> int:
    return sum(record.topic == ORDERS for _, record in records(root))


def write_word(root: Path, at: int, value: int) -> None:
    overwrite(root / shared_state.FILE_NAME, at, value.to_bytes(8, sys.byteorder))


def group_field(name: str) -> int:
    return shared_state.group_queue_slot_at(0) + layout.GROUP_QUEUE_SLOT.at[name]


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


def count_a_message_twice(root: Path) -> None:
    write_word(root, group_field("handled"), 1 << 40)


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


def damage_a_record_of_the_history(root: Path) -> None:
    with HistoryFile(root, writable=True) as file:
        head = write_history(file, 3)
        second = file.placed(head, 0)[1]
        overwrite(root / layout.HISTORY_FILE, file.position(0, second.end - 3), b"\xff\xff")


def damage_both_heads_of_the_history(root: Path) -> None:
    with HistoryFile(root, writable=True) as file:
        write_history(file, 3)
    for turn in range(2):
        overwrite(root / layout.HISTORY_FILE, turn * layout.HISTORY_HEAD_BYTES + layout.HISTORY_HEAD.size, b"\xff")


def damage_a_line_of_the_marks(root: Path) -> None:
    with (root / MARKS_FILE).open("ab") as marks:
        marks.write(b'\n{"at_ms":1,"kind":7,"subject":"mail","author":"ada","words":"","pid":1}\n')


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
    Break(9, set_the_bit_of_a_finished_message, frozenset({17})),
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
    Break(17, count_a_message_twice),
    Break(18, damage_a_record_of_the_history),
    Break(18, damage_both_heads_of_the_history),
    Break(19, damage_a_line_of_the_marks),
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


def test_the_command_ends_with_0_and_one_line_for_a_whole_store(written: Path) -> None:
    done = run("verify", written)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"ok: every invariant of {written} holds\n")


def test_the_command_ends_with_6_and_prints_a_line_for_each_problem(written: Path, tmp_path: Path) -> None:
    root = copy_with_runtime_file(written, tmp_path / "copy")
    empty_an_entry(root)
    set_the_bit_of_a_finished_message(root)
    problems = verify.verify(root)
    done = run("verify", root)
    assert done.returncode == 6
    assert done.stdout.splitlines() == [str(problem) for problem in problems]
    assert done.stdout.startswith(f"4  {entry_path(root, 30)}, byte {30 * ENTRY.size}: entry 30: empty\n9  ")
    assert done.stderr == f"check failed: 3 problems in {root}\n"


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
