"""The runtime file: when it is believed, its words, and its mutexes over the death of an owner."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.store import layout
from rmqclient.store.errors import ConfigMismatch, StoreBusy, TableFull
from rmqclient.store.files.file_lock import LockFile
from rmqclient.store.kernel._kernel import RobustMutex, Words
from rmqclient.store.message_store import open_store
from rmqclient.store.runtime import shared_state
from rmqclient.store.runtime.shared_state import SharedState

HEADER = layout.RUNTIME_HEADER.at


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    lock = LockFile(tmp_path / "lock")
    yield tmp_path
    lock.close()


@pytest.fixture
def state(root: Path) -> SharedState:
    built = shared_state.build(root, 1 << 20, 1_280)
    shared_state.finish(built, root)
    return built


def put(root: Path, at: int, content: bytes) -> None:
    with (root / shared_state.FILE_NAME).open("r+b") as file:
        file.seek(at)
        file.write(content)


# --- building, attaching, believing ---------------------------------------------------------------


def test_a_file_is_not_there_before_it_is_whole(root: Path) -> None:
    state = shared_state.build(root, 1 << 20, 1_280)
    assert not (root / shared_state.FILE_NAME).exists()
    shared_state.finish(state, root)
    assert (root / shared_state.FILE_NAME).stat().st_size == layout.RUNTIME_SIZE


def test_whoever_attaches_sees_the_same_words(root: Path, state: SharedState) -> None:
    other = shared_state.attach(root)
    state.published_to = 2**63 + 17
    assert other.published_to == 2**63 + 17
    other.flushed_to = 5
    assert state.flushed_to == 5


def test_what_is_left_behind_is_found(root: Path, state: SharedState) -> None:
    state.published_to = 99
    found = shared_state.leftover(root)
    assert found is not None
    assert found.published_to == 99


def test_building_it_anew_leaves_those_who_map_the_old_one_alone(root: Path, state: SharedState) -> None:
    state.published_to = 99
    again = shared_state.build(root, 1 << 20, 1_280)
    shared_state.finish(again, root)
    again.published_to = 1
    assert state.published_to == 99
    assert shared_state.attach(root).published_to == 1


@pytest.mark.parametrize(
    ("field", "content"),
    [
        ("magic", bytes(8)),
        ("version", struct.pack("=Q", 99)),
        ("fingerprint", struct.pack("=Q", 1)),
        ("boot_id", b"00000000-0000-0000-0000-000000000000"),
    ],
)
def test_a_file_of_another_build_or_boot_is_refused_and_not_believed(
    root: Path, state: SharedState, field: str, content: bytes
) -> None:
    put(root, HEADER[field], content)
    assert shared_state.leftover(root) is None
    with pytest.raises(ConfigMismatch, match="shared"):
        shared_state.attach(root)


def test_a_copy_is_not_believed(root: Path, state: SharedState, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    shutil.copy2(root / shared_state.FILE_NAME, tmp_path / "copy")
    assert shared_state.leftover(tmp_path / "copy") is None


@pytest.mark.parametrize(
    ("then", "now", "is_believed"), [(7, 7, True), (7, 8, False), (0, 8, True), (7, 0, True), (0, 0, True)]
)
def test_a_file_of_another_mounting_is_not_believed(
    root: Path, state: SharedState, monkeypatch: pytest.MonkeyPatch, then: int, now: int, is_believed: bool
) -> None:
    put(root, HEADER["mounting"], struct.pack("=Q", then))
    monkeypatch.setattr(shared_state, "mounting_of", lambda _: now)
    assert (shared_state.leftover(root) is not None) is is_believed


@pytest.mark.parametrize("size", [0, 4_096, layout.RUNTIME_SIZE - 1, layout.RUNTIME_SIZE + 1])
def test_a_file_of_another_size_is_refused_and_not_believed(root: Path, state: SharedState, size: int) -> None:
    os.truncate(root / shared_state.FILE_NAME, size)
    assert shared_state.leftover(root) is None
    with pytest.raises(ConfigMismatch, match=str(size)):
        shared_state.attach(root)


def test_no_file_is_nothing_left_behind(root: Path) -> None:
    assert shared_state.leftover(root) is None


def test_a_slot_beyond_its_table_is_refused() -> None:
    for at, slots in [
        (shared_state.queue_slot_at, layout.QUEUE_SLOTS),
        (shared_state.group_queue_slot_at, layout.GROUP_QUEUE_SLOTS),
        (shared_state.member_slot_at, layout.MEMBER_SLOTS),
        (shared_state.running_slot_at, layout.RUNNING_SLOTS),
    ]:
        assert at(slots - 1) < layout.RUNTIME_SIZE
        with pytest.raises(TableFull, match=str(slots)):
            at(slots)
        with pytest.raises(TableFull):
            at(-1)


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [-8, 1, 4, layout.RUNTIME_SIZE, layout.RUNTIME_SIZE - 4])
def test_a_word_outside_of_the_file_or_across_two_is_refused(state: SharedState, at: int) -> None:
    with pytest.raises(ValueError, match=f"byte {at} "):
        state.words.load(at)
    with pytest.raises(ValueError, match=f"byte {at} "):
        state.words.store(at, 1)


def test_words_are_changed_as_they_are_asked_to(state: SharedState) -> None:
    words, at = state.words, HEADER["init_epoch"]
    words.store(at, 5)
    assert words.add(at, 3) == 8
    assert not words.replace(at, 5, 9)
    assert words.replace(at, 8, 9)
    assert words.set_bits(at, 0b110) == 9
    assert words.load(at) == 0b1111
    words.store32(at, 2**32 - 1)
    assert words.load32(at) == 2**32 - 1
    with pytest.raises(OverflowError):
        words.store(at, 2**64)


def test_a_reader_never_sees_half_of_a_word(root: Path, state: SharedState) -> None:
    # Given another process that writes two values in turns, which have no half in common
    script = (
        "import sys; from pathlib import Path; from rmqclient.store.runtime import shared_state\n"
        "state = shared_state.attach(Path(sys.argv[1])); print('writing', flush=True)\n"
        "while True: state.published_to = 0; state.published_to = 2**64 - 1\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(root)], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"writing\n"

            # Then nothing else is ever read
            seen, reads = set[int](), 0
            while reads < 300_000 or len(seen) < 2:
                assert writer.poll() is None
                seen.update(state.published_to for _ in range(1_000))
                reads += 1_000
            assert seen == {0, 2**64 - 1}
        finally:
            writer.kill()


def test_a_wait_ends_at_once_when_the_word_is_another_already(state: SharedState) -> None:
    at = HEADER["flush_word"]
    assert state.words.wait(at, state.words.load32(at) + 1, 60_000)


def test_a_wait_ends_when_the_time_is_up(state: SharedState) -> None:
    at = HEADER["flush_word"]
    started = time.monotonic()
    assert not state.words.wait(at, state.words.load32(at), 20)
    assert 0.015 < time.monotonic() - started < 60


def test_a_signal_ends_a_wait_through_any_mapping(root: Path, state: SharedState) -> None:
    at = HEADER["flush_word"]
    seen = state.words.load32(at)
    woken: list[bool] = []
    sleeper = threading.Thread(target=lambda: woken.append(state.words.wait(at, seen, 60_000)))
    sleeper.start()
    while sleeper.is_alive():
        shared_state.attach(root).words.signal(at)
        sleeper.join(0.001)
    assert woken == [True]


# --- mutexes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [-64, 8, 32, layout.RUNTIME_SIZE])
def test_a_mutex_stands_in_64_bytes_of_its_own(state: SharedState, at: int) -> None:
    with pytest.raises(ValueError, match="cannot hold a mutex"):
        RobustMutex(state.mapping, at)


def test_a_mutex_is_held_by_one(root: Path, state: SharedState) -> None:
    with state.locked(state.table_mutex, 1_000):
        refused: list[bool] = []
        other = threading.Thread(target=lambda: refused.append(shared_state.attach(root).table_mutex.try_acquire()))
        other.start()
        other.join()
        assert refused == [False]
    assert state.table_mutex.try_acquire()
    state.table_mutex.release()


def test_whoever_waits_too_long_is_told_who_holds_it(state: SharedState) -> None:
    with state.locked(state.append_mutex, 1_000):
        told: list[StoreBusy] = []

        def wait() -> None:
            with pytest.raises(StoreBusy) as raised, state.locked(state.append_mutex, 30):
                pass
            told.append(raised.value)

        other = threading.Thread(target=wait)
        other.start()
        other.join()
    assert str(os.getpid()) in str(told[0])
    assert "30 ms" in str(told[0])


@pytest.mark.parametrize("name", ["append_mutex", "flush_mutex", "table_mutex"])
def test_a_dead_owners_mutex_goes_to_the_next_one_again_and_again(root: Path, state: SharedState, name: str) -> None:
    mutex = getattr(state, name)
    for _ in range(3):
        child = os.fork()
        if child == 0:
            getattr(shared_state.attach(root), name).acquire(1_000)
            os._exit(0)
        os.waitpid(child, 0)
        assert mutex.process == child
        mutex.acquire(1_000)
        assert mutex.process == os.getpid()
        mutex.release()


def test_two_openings_of_one_process_are_two_owners(root: Path, state: SharedState) -> None:
    other = shared_state.attach(root)
    with state.locked(state.table_mutex, 1_000):
        first = other.table_mutex.owner
        assert not other.table_mutex.inherit()
        with pytest.raises(StoreBusy):
            other.table_mutex.acquire(50)
    with other.locked(other.table_mutex, 1_000):
        assert state.table_mutex.owner not in (0, first)


def test_a_number_that_an_owner_of_an_earlier_runtime_file_has_is_passed_over(root: Path, state: SharedState) -> None:
    # Given an owner that has gone on living after the file was built anew, with a counter from the begin
    state.words.store(HEADER["openings"], 0)

    # Then another one takes the next number that is free
    with state.locked(state.table_mutex, 1_000):
        assert not shared_state.attach(root).table_mutex.inherit()


def test_a_thread_of_a_closed_store_holds_its_mutex_as_somebody_alive(root: Path) -> None:
    # Given a store that one thread closes while another one has a mutex
    store = open_store(root, housekeeping=False)
    state = store.state
    state.table_mutex.acquire(1_000)
    with open_store(root, housekeeping=False) as other:
        store.close()

        # Then nobody takes the mutex from it
        with pytest.raises(StoreBusy):
            other.state.table_mutex.acquire(100)
        state.table_mutex.release()
        other.state.table_mutex.acquire(1_000)
        other.state.table_mutex.release()


def test_a_forked_child_neither_keeps_its_parent_alive_nor_locks_as_it(root: Path, state: SharedState) -> None:
    # Given a process that forks, and dies with a mutex while its child lives on
    asked, said = os.pipe(), os.pipe()
    parent = os.fork()
    if parent == 0:
        mutex = shared_state.attach(root).table_mutex
        mutex.acquire(1_000)
        if os.fork() == 0:
            try:
                mutex.release()
                mutex.acquire(10)
            except PermissionError:
                os.write(said[1], b"refused")
            os.read(asked[0], 1)
        os._exit(0)
    os.waitpid(parent, 0)
    assert os.read(said[0], 10) == b"refused"

    # Then the next one that waits takes the mutex over
    assert state.table_mutex.process == parent
    state.table_mutex.acquire(1_000)
    state.table_mutex.release()
    os.write(asked[1], b".")
    for end in (*asked, *said):
        os.close(end)


def test_a_mutex_in_a_mapping_of_its_own_is_the_same(root: Path, state: SharedState) -> None:
    assert state.flush_mutex.try_acquire()
    other = shared_state.attach(root)
    assert other.flush_mutex.process == os.getpid()
    state.flush_mutex.release()
    assert other.flush_mutex.owner == 0
    assert Words(other.mapping).load(HEADER["flush_mutex"]) is not None


def test_a_column_is_one_field_of_a_whole_table(state: SharedState) -> None:
    at, size = shared_state.member_slot_at(0) + layout.MEMBER_SLOT.at["heartbeat"], layout.MEMBER_SLOT.size
    for slot in range(layout.MEMBER_SLOTS):
        state.words.store(at + slot * size, slot + 1)
    assert state.column(at, size, layout.MEMBER_SLOTS) == list(range(1, layout.MEMBER_SLOTS + 1))
    assert state.column(at, size, 3) == [1, 2, 3]
    assert state.column(at, size, 0) == []


def test_a_change_of_members_is_signalled_once_to_each_consumer_that_sleeps(state: SharedState) -> None:
    # Given the members of slots 0 and 2, which both sleep at slot 0, that of slot 3, and a free slot between them
    fields = layout.MEMBER_SLOT.at
    for slot, (incarnation, wake_slot) in enumerate([(1, 0), (2, 1), (5, 0), (1, 3)]):
        state.words.store(shared_state.member_slot_at(slot) + fields["incarnation"], incarnation)
        state.words.store32(shared_state.member_slot_at(slot) + fields["wake_slot"], wake_slot)
    state.signal_membership()
    words = [state.words.load32(shared_state.member_slot_at(slot) + fields["wake_word"]) for slot in range(4)]
    assert words == [1, 0, 0, 1]
    assert state.words.load32(HEADER["membership_word"]) == 1
