"""Retention: files go in an order that leaves a right store, and readers and consumers go on behind the gap."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageQueue, MessageStore, layout, open_store
from rmqclient.store.append.releaser import REMOVED_WORD, Releaser
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.inspect.verify import verify
from rmqclient.store.marks import marks_of, user
from rmqclient.store.settings.disk import Usage
from rmqclient.store.upkeep.retention_rules import FILES_A_PASS
from tests.support.oracle import reference
from tests.support.stores import QUEUE, SMALL, TOPIC, abandon, appender_of
from tests.unit.upkeep.retained import A_FILE, BODY_BYTES, HOUR, Kept, fill, force


@pytest.fixture
def kept(store: MessageStore) -> Kept:
    fill(store, 5)
    return Kept(store)


@pytest.mark.guarantee("G12")
def test_the_oldest_files_go_and_what_is_left_is_a_right_store(store: MessageStore) -> None:
    fill(store, 15)
    size = SMALL.commit_log_file_bytes
    before = reference.read_commit_log(store.root)
    assert force(store) == [number * size for number in range(14)]

    assert store.log_files.bases() == [14 * size]
    assert store.state.min_offset == 14 * size
    kept = [record for offset, record in before if offset >= 14 * size]
    assert [record for _, record in reference.read_commit_log(store.root)] == kept
    assert store.topics.min_offset(QUEUE) == kept[0].queue_offset
    assert verify(store.root) == []
    assert reference.check_store(store.root) == []

    # And it goes on, is closed, and opened again as it is
    appender_of(store).append(Message(TOPIC, b"after"))
    end = store.topics.max_offset(QUEUE)
    store.close()
    with open_store(store.root, housekeeping=False) as again:
        assert again.state.min_offset == 14 * size
        assert (again.topics.min_offset(QUEUE), again.topics.max_offset(QUEUE)) == (kept[0].queue_offset, end)
        assert again.messages.at(QUEUE, end - 1).body == b"after"
    assert reference.check_store(store.root) == []


def test_a_pass_removes_ten_files_at_most_and_pauses_between_them(kept: Kept) -> None:
    fill(kept.store, 13)
    kept.clock.pass_by(80 * HOUR)
    first = kept.retention
    assert len(first.clean()) == FILES_A_PASS
    assert kept.pauses == [0.1] * (FILES_A_PASS - 1)
    assert len(first.clean()) == 2


@pytest.mark.guarantee("G128")
def test_what_retention_removes_is_marked_without_an_author_and_what_a_person_asks_for_with_one(kept: Kept) -> None:
    fill(kept.store, 13)
    kept.clock.pass_by(80 * HOUR)
    kept.retention.clean()
    kept.retention.clean(requested=True)
    kept.retention.clean(requested=True)
    marks = [(mark.kind, mark.author, mark.words.split()[0]) for mark in marks_of(kept.store.root)]
    assert marks == [("retention", "", str(FILES_A_PASS)), ("retention", user(), "2")]


@pytest.mark.guarantee("G128")
def test_files_that_were_removed_before_one_that_cannot_be_are_marked(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(kept.store, 5)
    kept.clock.pass_by(80 * HOUR)
    remove, tried = kept.retention._remove_log_file, itertools.count()

    def fail_the_second(base: int) -> None:
        if next(tried) == 1:
            raise OSError(5, "Input/output error")
        remove(base)

    monkeypatch.setattr(kept.retention, "_remove_log_file", fail_the_second)
    with pytest.raises(OSError, match="Input/output"):
        kept.retention.clean()
    assert [mark.words for mark in marks_of(kept.store.root)] == ["1 file of the log, from 0 on"]


def test_consume_queue_files_go_with_their_last_message_and_the_last_file_stays(store: MessageStore) -> None:
    fill(store, 12)
    queue_files = store.consume_queues[QUEUE].files
    bases = queue_files.bases()
    assert len(bases) == 3
    force(store)
    assert queue_files.bases() == bases[-1:]


def test_a_queue_without_messages_keeps_its_numbers(store: MessageStore) -> None:
    # Given a queue whose messages are all older than those of another one
    appender = store.appenders.make(lambda topic: store.topics.create(topic, 1), lambda body: bytes(str(body), "utf-8"))
    for _ in range(5):
        appender.append(Message("quiet", b"old"))
    fill(store, 3)
    force(store)

    # Then it is empty, its file is there, and the next message gets the next number, also after opening again
    quiet = MessageQueue("quiet", 0)
    assert (store.topics.min_offset(quiet), store.topics.max_offset(quiet)) == (5, 5)
    assert verify(store.root) == []
    store.close()
    with open_store(store.root, housekeeping=False) as again:
        assert (again.topics.min_offset(quiet), again.topics.max_offset(quiet)) == (5, 5)
        assert appender_of(again).append(Message("quiet", b"new")).queue_offset == 5
        assert again.messages.at(quiet, 5).body == b"new"
    assert reference.check_store(store.root) == []


@pytest.mark.guarantee("G12")
def test_a_file_is_removed_only_when_every_reader_has_been_told(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 12)
    remove = FileQueue.remove
    removed: list[str] = []

    def checked(files: FileQueue, base: int) -> None:
        if files is store.log_files:
            assert store.state.min_offset >= base + files.file_bytes
        else:
            assert store.topics.min_offset(QUEUE) * layout.CONSUME_QUEUE_ENTRY.size >= base + files.file_bytes
        removed.append(files.directory.name)
        remove(files, base)

    monkeypatch.setattr(FileQueue, "remove", checked)
    force(store)
    assert removed.count("commitlog") == 11
    assert removed.count("0") == 2


def test_nothing_goes_that_is_not_durable(store: MessageStore) -> None:
    fill(store, 4)
    store.state.flushed_to = SMALL.commit_log_file_bytes + 1
    assert force(store) == [0]


def test_a_poisoned_store_is_left_as_it_is(store: MessageStore) -> None:
    fill(store, 4)
    store.disk.usage = lambda: Usage(99.0, 0)  # type: ignore[method-assign]
    store.state.poisoned = 5
    store.retention.run()
    assert len(store.log_files.bases()) == 4
    store.state.poisoned = 0
    store.retention.run()
    assert len(store.log_files.bases()) == 1


def test_another_process_finishes_what_a_killed_one_began(store: MessageStore) -> None:
    # Given a minimum that was raised, and then nothing
    fill(store, 5)
    store.state.raise_min_offset(2 * SMALL.commit_log_file_bytes)
    with open_store(store.root, SMALL, housekeeping=False) as other:
        assert other.retention.clean() == []
        assert other.log_files.bases()[0] == 2 * SMALL.commit_log_file_bytes
        assert other.topics.min_offset(QUEUE) == 2 * A_FILE
    assert verify(store.root) == []


def test_two_that_clean_at_once_do_no_harm(store: MessageStore) -> None:
    fill(store, 12)
    with open_store(store.root, SMALL, housekeeping=False) as other:
        other.retention._pause = lambda _: force(store) and None
        other.disk.usage = lambda: Usage(99.0, 0)  # type: ignore[method-assign]
        while other.retention.clean():
            pass
    assert store.log_files.bases() == [11 * SMALL.commit_log_file_bytes]
    assert verify(store.root) == []


def test_a_flush_that_meets_a_file_just_removed_poisons_nothing(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a flush of a queue that has listed its files when retention removes some
    fill(store, 12)
    files = store.consume_queues[QUEUE].files
    listed = files.bases()
    monkeypatch.setattr(type(files), "bases", lambda queue: listed if queue is files else [0])
    files.remove(listed[0])
    store.flusher._flushed_queues.clear()
    store.flusher.flush_queues()
    assert not store.state.poisoned


def test_index_files_go_when_all_they_point_to_has_gone(tmp_path: Path) -> None:
    config = replace(SMALL, index_slots=16, index_entries=40)
    with open_store(tmp_path / "store", config, housekeeping=False) as store:
        appender = appender_of(store)
        ids = [appender.append(Message(TOPIC, bytes(BODY_BYTES), keys=["k"])).message_id for _ in range(150)]
        store.flusher.flush_thorough()
        store.index.catch_up()
        before = store.index_files.paths()
        assert len(before) == 8, "39 entries a file, two for each message"
        force(store)

        # Then those stay that point to a message which is there, and queries find just these
        low = store.topics.min_offset(QUEUE)
        assert store.index_files.paths() == before[low * 2 // 39 :]
        assert len(store.messages.by_key(TOPIC, "k", limit=1_000)) == 150 - low
        assert store.messages.by_id(ids[low - 1]) is None
        found = store.messages.by_id(ids[low])
        assert found is not None
        assert found.queue_offset == low
        assert store.messages.offset_by_time(QUEUE, 0) == low
        assert verify(store.root) == []
    with open_store(tmp_path / "store", housekeeping=False) as again:
        assert again.messages.by_id(ids[-1]) is not None


def test_a_damaged_index_file_stops_no_removal(store: MessageStore) -> None:
    fill(store, 3)
    store.index.catch_up()
    short = store.index_files.paths()[0].with_name("20000101000000000")
    short.write_bytes(b"short")
    assert len(force(store)) == 2
    assert store.topics.min_offset(QUEUE) == 2 * A_FILE
    assert short.exists()


def test_an_index_that_is_behind_goes_on_at_the_oldest_record(store: MessageStore) -> None:
    fill(store, 5)
    force(store)
    last = appender_of(store).append(Message(TOPIC, b"last", keys=["k"]))
    assert [message.body for message in store.messages.by_key(TOPIC, "k")] == [b"last"]
    assert store.state.indexed_to == last.commit_log_end
    assert verify(store.root) == []


HOLDER = """
import os, sys
from rmqclient.store import open_store
from tests.support.stores import SMALL, SPAN, QUEUE, grant_of
store = open_store(sys.argv[1], housekeeping=False)
taken = grant_of(store).take(SPAN, SPAN)
held = [store.log_files.mapping(base) for base in store.log_files.bases()]
print("mapped", flush=True)
for line in sys.stdin:
    print(sum(any(mapping[:64]) for mapping in map(memoryview, held)), flush=True)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256m", "none", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.guarantee("G12")
def test_the_space_comes_back_although_another_process_had_the_files_mapped(small_disk: Path) -> None:
    with open_store(small_disk / "store", SMALL, housekeeping=False) as store:
        fill(store, 40)
        command = [sys.executable, "-c", HOLDER, str(store.root)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            assert holder.stdout.readline() == "mapped\n"
            used = used_bytes(small_disk)
            assert len(force(store)) == 39
            wanted, held = used - 39 * SMALL.commit_log_file_bytes, ""
            for _ in range(500):
                print("look", file=holder.stdin, flush=True)  # a turn of the other process
                held = holder.stdout.readline()
                if held == "1\n" and used_bytes(small_disk) <= wanted:
                    break
            assert held == "1\n", "all but the newest are zeros to whoever still holds them"
            assert used_bytes(small_disk) <= wanted
            holder.stdin.close()
            assert holder.wait(10) == 0


def test_files_that_are_removed_before_its_thread_begins_are_released(store: MessageStore) -> None:
    class Mappings:
        def __init__(self) -> None:
            self.released = threading.Event()

        def release_removed(self) -> None:
            self.released.set()

    mappings = Mappings()
    releaser = Releaser(store.state, mappings, looks=False)  # type: ignore[arg-type]
    store.state.words.signal(REMOVED_WORD)
    releaser.start()
    try:
        assert mappings.released.wait(10)
    finally:
        releaser.close()


def used_bytes(path: Path) -> int:
    status = os.statvfs(path)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def test_what_was_removed_is_said(store: MessageStore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    fill(store, 3)
    force(store)
    assert "removed 2 commit log files, from 0 on" in caplog.text


def test_recovery_after_everybody_died_begins_at_the_oldest_file(store: MessageStore) -> None:
    fill(store, 6)
    force(store)
    appender_of(store).append(Message(TOPIC, b"last"))
    low, high = store.topics.min_offset(QUEUE), store.topics.max_offset(QUEUE)
    abandon(store)
    (store.root / "shared").unlink()  # as after a reboot
    with open_store(store.root, housekeeping=False) as again:
        assert (again.topics.min_offset(QUEUE), again.topics.max_offset(QUEUE)) == (low, high)
        assert again.messages.at(QUEUE, high - 1).body == b"last"
    assert reference.check_store(store.root) == []
