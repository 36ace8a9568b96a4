"""The index: bytes as RocketMQ has them, built behind the log, found by key, and never believed without a look."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqclient.store import Message, MessageStore, java_hash, open_store
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.files.file_queue import MappingCache
from rmqclient.store.kernel._kernel import find_in_index, index_key_hash
from rmqclient.store.log import index_file
from rmqclient.store.log.index_file import IndexFiles, paths, sizes_in
from rmqclient.store.recovery import recovery
from tests.support.oracle import reference
from tests.support.oracle.index import check_index, key_hash, keys_of, read_indexes
from tests.support.stores import abandon
from tests.support.written import ORDERS, SMALL, appender_of, fill, message

SLOTS, ENTRIES = SMALL.index_slots, SMALL.index_entries


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    with open_store(root, SMALL, housekeeping=False) as opened:
        yield opened


# --- bytes ----------------------------------------------------------------------------------------


def test_the_hash_of_a_key_is_rocketmqs() -> None:
    assert index_key_hash("TopicA", "k1") == 1_903_240_649


@given(topic=st.text("abcXYZ%_-", min_size=1, max_size=20), key=st.text(max_size=20))
def test_the_hash_of_any_key_is_javas_without_its_sign(topic: str, key: str) -> None:
    try:
        assert index_key_hash(topic, key) == key_hash(topic, key)
    except UnicodeEncodeError:
        assert not key.isprintable()  # a lone surrogate, which no message can hold


def test_the_one_hash_that_has_no_positive_counterpart_becomes_zero() -> None:
    # Java's abs of the smallest number is the same number: RocketMQ then takes 0
    key = key_of_the_smallest_hash("t")
    assert java_hash(f"t#{key}") == -(2**31)
    assert index_key_hash("t", key) == 0


def key_of_the_smallest_hash(topic: str) -> str:
    """Solve ``hash = 961 * hash of the head + 31 * a + b`` for the last two characters of a key."""
    for number in range(100_000):
        head = f"{number * 7_919:08x}"
        rest = (2**31 - 961 * java_hash(f"{topic}#{head}")) % 2**32
        if 64 * 31 < rest < 0xD000 * 31:
            return head + chr(rest // 31 - 1) + chr(rest % 31 + 31)
    raise AssertionError("no such key")


def test_every_key_of_every_message_has_its_entry_over_several_files(store: MessageStore, root: Path) -> None:
    fill(store)
    store.index.catch_up()
    assert len(paths(root)) > 1
    assert check_index(root, SLOTS) == []


def test_a_full_file_has_one_entry_less_than_its_room_and_hands_its_end_on(store: MessageStore, root: Path) -> None:
    fill(store)
    store.index.catch_up()
    full, following = read_indexes(root, SLOTS)[:2]
    assert full.header[5] == ENTRIES
    assert full.name < following.name
    # The first record of the successor is the one that did not fit, or the rest of its keys
    assert following.header[2] >= full.header[3]


def test_indexing_in_many_small_steps_gives_the_bytes_of_one_large_step(tmp_path: Path) -> None:
    for name, stride in (("large", 1_000), ("small", 1)):
        with open_store(tmp_path / name, SMALL, housekeeping=False) as store:
            appender = appender_of(store)
            for number in range(180):
                appender.append(message(number))
                if number % stride == 0:
                    store.index.catch_up()
            store.index.catch_up()
        assert check_index(tmp_path / name, SLOTS) == []


def test_what_is_no_index_file_is_passed_over(store: MessageStore, root: Path) -> None:
    fill(store, 5)
    store.index.catch_up()
    (root / "index" / "notes.txt").write_text("mine")
    assert len(paths(root)) == 1
    assert len(store.messages.by_key(ORDERS, "k1")) == 1


def test_the_sizes_of_a_brokers_index_file_are_found_out(store: MessageStore, root: Path) -> None:
    fill(store)
    store.index.catch_up()
    assert {sizes_in(path) for path in paths(root)} == {(SLOTS, ENTRIES)}


def test_a_file_is_named_behind_the_newest_one_whatever_the_clock_says(root: Path) -> None:
    root.mkdir()
    files = IndexFiles(root, 4, 8, MappingCache(8))
    names = [files.create(now).path.name for now in (1_700_000_000_999, 1_700_000_000_999, 1_600_000_000_000)]
    assert names == sorted(set(names))
    assert [len(name) for name in names] == [17, 17, 17]


def test_a_search_sees_files_that_others_added_or_removed_since(
    store: MessageStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a reader that has listed the files, so long after their last change that it lists them no more
    moments = itertools.count(0, 3_000_000_000)
    monkeypatch.setattr(index_file, "boottime", lambda: next(moments))
    fill(store)
    store.index.catch_up()
    reader, listed = fresh(root), listings(monkeypatch)
    assert len(found_by(reader)) == 1
    assert [found_by(reader) for _ in range(5)] == [found_by(fresh(root))] * 5
    assert len(listed) == 2 + 1, "the reader twice, and the other once"
    # When others add files, and remove one, Then it sees that
    fill(store)
    store.index.catch_up()
    assert len(found_by(reader)) == len(found_by(fresh(root))) == 2
    fresh(root).remove(paths(root)[0])
    assert found_by(reader) == found_by(fresh(root))


def test_two_changes_in_one_step_of_the_file_systems_clock_are_two(
    store: MessageStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "boottime", lambda: 7)
    reader = fresh(root)
    fill(store)
    store.index.catch_up()
    assert found_by(reader) == found_by(reader) == found_by(fresh(root))
    changed = (root / "index").stat().st_mtime_ns
    fill(store)
    store.index.catch_up()
    os.utime(root / "index", ns=(changed, changed))
    assert found_by(reader) == found_by(fresh(root))


def test_a_key_that_very_many_messages_have_finds_all_of_them_the_newest_first(store: MessageStore, root: Path) -> None:
    appender = appender_of(store)
    sent = [appender.append(Message(ORDERS, b"", keys=("same",))).commit_log_offset for _ in range(400)]
    store.index.catch_up()
    assert len(paths(root)) < 400 // 64  # more in a file than are looked up at once
    assert list(store.index_files.candidates(ORDERS, "same", 0, 2**63 - 1)) == sent[::-1]


@pytest.mark.parametrize("far", [2**63, 10**30])
def test_times_may_be_as_far_away_as_anybody_likes(store: MessageStore, far: int) -> None:
    fill(store)
    store.index.catch_up()
    found = list(store.index_files.candidates(ORDERS, "k177", -far, far))
    assert found == found_by(store.index_files)
    assert found
    assert list(store.index_files.candidates(ORDERS, "k177", far, far)) == []
    assert list(store.index_files.candidates(ORDERS, "k177", -far, -far)) == []


def test_a_file_that_is_shorter_than_it_should_be_is_named(store: MessageStore, root: Path) -> None:
    fill(store)
    store.index.catch_up()
    os.truncate(paths(root)[0], 1_000)
    with pytest.raises(StoreCorrupt, match=f"{paths(root)[0].name}.* has 1000 bytes instead of"):
        found_by(fresh(root))


def test_an_entry_that_cannot_be_read_is_an_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with (tmp_path / "empty").open("rb") as file, pytest.raises(OSError, match="Input/output error"):
        find_in_index(file.fileno(), SLOTS, ENTRIES, 7, 0, 2**62)


def fresh(root: Path) -> IndexFiles:
    """Return what has listed nothing yet."""
    return IndexFiles(root, SLOTS, ENTRIES, MappingCache(8))


def found_by(files: IndexFiles) -> list[int]:
    return list(files.candidates(ORDERS, "k177", 0, 2**62))


def listings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return a list that gets the root of the store at each listing from now on."""
    listed: list[Path] = []

    def listing(root: Path) -> list[Path]:
        listed.append(root)
        return paths(root)

    monkeypatch.setattr(index_file, "paths", listing)
    return listed


# --- recovery -------------------------------------------------------------------------------------


@pytest.mark.guarantee("G11")
def test_a_deleted_index_is_made_again(root: Path) -> None:
    with open_store(root, SMALL, housekeeping=False) as store:
        fill(store)
    shutil.rmtree(root / "index")
    with open_store(root, housekeeping=False) as store:
        assert len(store.messages.by_key(ORDERS, "k1")) == 1
    assert check_index(root, SLOTS) == []


def test_an_index_of_before_a_power_cut_is_believed_but_for_its_newest_file(root: Path) -> None:
    # Given a store whose processes died with the kernel, and whose newest index file has lost a page
    store = open_store(root, SMALL, housekeeping=False)
    fill(store)
    store.index.catch_up()
    store.flusher.flush_thorough()
    abandon(store)
    (root / "shared").unlink()
    *older, newest = paths(root)
    kept = {path.name: path.read_bytes() for path in older}
    newest.write_bytes(newest.read_bytes()[:200].ljust(newest.stat().st_size, b"\0"))

    # Then the older ones stay as they are, and every key is found
    with open_store(root, SMALL, housekeeping=False) as again:
        assert [message.keys[0] for message in again.messages.by_key(ORDERS, "k177")] == ["k177"]
    assert {path.name: path.read_bytes() for path in paths(root)[: len(older)]} == kept
    assert {offset for file in read_indexes(root, SLOTS) for _, offset, *_ in file.entries} == set(all_offsets(root))


def test_an_index_file_that_was_removed_does_not_come_back_after_a_power_cut(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a log that was cut, whose index is removed, and other records in the same places
    store = open_store(root, SMALL, housekeeping=False)
    fill(store)
    store.index.catch_up()
    abandon(store)
    synced: list[Path] = []
    monkeypatch.setattr(recovery, "sync_directory", synced.append)
    max((root / "commitlog").iterdir()).unlink()
    (root / "shared").unlink()
    with open_store(root, SMALL, housekeeping=False):
        # Then its removal is on disk before anything is written
        assert synced == [root / "index"]


def test_index_files_for_what_was_cut_off_the_log_are_made_again(root: Path) -> None:
    with open_store(root, SMALL, housekeeping=False) as store:
        fill(store)
    # Given a log that lost its last file, as after a cut
    last = max((root / "commitlog").iterdir())
    last.unlink()
    shutil.rmtree(root / "consumequeue")
    for name in ("checkpoint", "shared"):
        (root / name).unlink()

    with open_store(root, SMALL, housekeeping=False) as store:
        for number in range(180, 260):
            appender_of(store).append(message(number))
    assert check_index(root, SLOTS) == []


def test_a_damaged_record_is_not_indexed_and_those_behind_it_are(root: Path) -> None:
    with open_store(root, replace(SMALL, message_index=False), housekeeping=False) as store:
        fill(store, 9)
    log = min((root / "commitlog").iterdir())
    content = bytearray(log.read_bytes())
    at = content.index(b"k3 ")
    size_at = content.rindex(bytes.fromhex("daa320a7"), 0, at) - 4
    content[size_at : size_at + 4] = b"\x00\x00\x00\x01"
    log.write_bytes(content)
    with open_store(root, SMALL, housekeeping=False) as store:
        assert store.messages.by_key(ORDERS, "k3") == []
        assert [found.keys[0] for found in store.messages.by_key(ORDERS, "k7")] == ["k7"]


def all_offsets(root: Path) -> list[int]:
    return [offset for offset, _ in reference.read_commit_log(root)]


# --- searching ------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(numbers=st.lists(st.integers(0, 300), max_size=60), steps=st.integers(1, 9))
def test_a_key_is_found_where_it_is_and_nowhere_else(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], steps: int
) -> None:
    root = tmp_path_factory.mktemp("index")
    with open_store(root / "store", replace(SMALL, index_slots=3, index_entries=20), housekeeping=False) as store:
        appender = appender_of(store)
        for count, number in enumerate(numbers):
            appender.append(Message(ORDERS, b"%d" % number, keys=[f"k{number}", f"m{number % 7}"]))
            if count % steps == 0:
                store.index.catch_up()
        for number in {*numbers[:5], 301}:
            found = [int(each.body) for each in store.messages.by_key(ORDERS, f"k{number}")]
            assert found == [number] * numbers.count(number)
        in_class = [int(each.body) for each in store.messages.by_key(ORDERS, "m3", limit=1_000)]
        assert in_class == [number for number in reversed(numbers) if number % 7 == 3]


def test_a_chain_that_goes_round_ends(store: MessageStore, root: Path) -> None:
    fill(store, 30)
    store.index.catch_up()
    path = paths(root)[0]
    content = bytearray(path.read_bytes())
    entries_at = 40 + 4 * SLOTS
    for number in range(1, 40):  # every entry claims to follow the newest
        at = entries_at + 20 * number + 16
        content[at : at + 4] = (39).to_bytes(4, "big")
    with path.open("r+b") as file:
        file.write(content)
    assert [found.keys[0] for found in store.messages.by_key(ORDERS, "k1")] in ([], ["k1"])


def test_rolled_back_messages_are_not_indexed() -> None:
    assert keys_of(reference.ReferenceRecord(topic="t", properties=b"KEYS\x01a\x02", sys_flag=0xC)) == []
