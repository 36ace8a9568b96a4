"""Pulls of messages that are on the disk only."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path

import pytest

from rmqclient.broker.pulling import page_prefetch
from rmqclient.broker.pulling.page_prefetch import PagePrefetch
from rmqclient.store import MessageStore, StoreConfig, open_store
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.wire import decode_records
from tests.broker.pulling.room import QUEUE, Client, pull_room


def test_a_pull_waits_for_the_disk_and_the_loop_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pull_room(tmp_path / "store") as room:
        room.send("a", "b")
        monkeypatch.setattr(room.room._prefetch, "are_missing", lambda *_: True)

        async def scenario() -> None:
            client = Client()
            assert room.ask(client, 0) is None
            answer = await asyncio.wait_for(client.answers.get(), 20)
            assert [message.queue_offset for message in decode_records(answer.body)] == [0, 1]

        asyncio.run(scenario())


def test_pages_that_the_host_has_dropped_are_missing_until_they_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_prefetch, "NEAR_BYTES", -1)
    fill(tmp_path / "store")
    with open_store(tmp_path / "store", housekeeping=False) as store:
        if not dropped(tmp_path / "store"):
            pytest.skip("this file system does not drop the pages of a file when it is asked to")
        far = PagePrefetch(store)
        assert far.are_missing(QUEUE, 0, 4)
        far.fetch(QUEUE, 0, 4, 1 << 20)
        assert not far.are_missing(QUEUE, 0, 4)


def test_records_that_share_pages_are_looked_at_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_prefetch, "NEAR_BYTES", -1)
    with pull_room(tmp_path / "store") as room:
        room.send(*["a"] * 20)
        records = decode_records(room.pull_now().body)
        looks = looks_at_the_log(room.store, monkeypatch)
        assert not PagePrefetch(room.store).are_missing(QUEUE, 0, 20)
    (look,) = looks
    assert look.start == records[0].commit_log_offset
    assert records[-1].commit_log_offset < look.stop - 1 < room.store.state.published_to


def test_what_was_seen_ahead_is_not_looked_at_again_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_prefetch, "NEAR_BYTES", -1)
    monkeypatch.setattr(page_prefetch, "AHEAD", 8)
    with pull_room(tmp_path / "store") as room:
        room.send(*["a"] * 20)
        looks = looks_at_the_log(room.store, monkeypatch)
        far = PagePrefetch(room.store)
        assert not far.are_missing(QUEUE, 0, 4)
        assert not far.are_missing(QUEUE, 4, 4)
        assert len(looks) == 1
        assert not far.are_missing(QUEUE, 5, 4)  # it ends behind what was seen
        assert len(looks) == 2
        monkeypatch.setattr(page_prefetch, "_AHEAD_S", -1.0)
        assert not far.are_missing(QUEUE, 10, 4)
        assert not far.are_missing(QUEUE, 10, 4)
        assert len(looks) == 4


@pytest.mark.parametrize("offset", [3, 7])
def test_nothing_is_missing_behind_the_last_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    monkeypatch.setattr(page_prefetch, "NEAR_BYTES", -1)
    with pull_room(tmp_path / "store") as room:
        room.send(*["a"] * 3)
        assert not PagePrefetch(room.store).are_missing(QUEUE, offset, 4)


def test_messages_of_a_queue_that_are_far_apart_are_looked_at_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_prefetch, "NEAR_BYTES", -1)
    monkeypatch.setattr(page_prefetch, "_AHEAD_BYTES", 20_000)
    with pull_room(tmp_path / "store") as room:
        room.send(*["a"] * 3, size=9_000)
        looks = looks_at_the_log(room.store, monkeypatch)
        assert not PagePrefetch(room.store).are_missing(QUEUE, 0, 2)
    assert all(len(look) < 20_000 for look in looks)
    assert len(looks) > 1


def test_the_ends_of_every_record_are_looked_at_in_its_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_prefetch, "NEAR_BYTES", -1)
    size = 65_536
    with pull_room(tmp_path / "store", StoreConfig(commit_log_file_bytes=size, max_body_bytes=16_384)) as room:
        for length in (60, 60, 9_000, 60, 16_000, 60, 15_000, 60, 16_000, 60, 16_000):
            room.send("a", size=length)
        looks = looks_at_the_log(room.store, monkeypatch)
        assert not PagePrefetch(room.store).are_missing(QUEUE, 0, 11)
        entries = room.store.consume_queues[QUEUE].entries(0, 11)
    ends = [place for entry in entries for place in (entry.commit_log_offset, entry.commit_log_offset + entry.size - 1)]
    assert len({place // size for place in ends}) > 1
    assert all(any(place in look for look in looks) for place in ends)
    assert all(look.start // size == (look.stop - 1) // size for look in looks)
    assert sum(map(len, looks)) < 16_000  # the middle of a long record is not read for it


def looks_at_the_log(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> list[range]:
    """Return where the log is looked at from now on."""
    looks, is_in_memory = [], page_prefetch._is_in_memory

    def looking(files: FileQueue, begin: int, end: int) -> bool:
        if files is store.log_files:
            looks.append(range(begin, end))
        return is_in_memory(files, begin, end)

    monkeypatch.setattr(page_prefetch, "_is_in_memory", looking)
    return looks


def fill(root: Path) -> None:
    with pull_room(root) as room:
        room.send(*["a"] * 4, size=9_000)
    del room
    gc.collect()  # the host keeps pages that are mapped


def dropped(root: Path) -> bool:
    """Ask the host to forget the log; return whether it did."""
    (path,) = (root / "commitlog").iterdir()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.preadv(descriptor, [bytearray(1)], 20_000, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
