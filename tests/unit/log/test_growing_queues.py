"""A file of a queue has its full size at once, and blocks on the disk only for the messages that it has."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageStore, StoreConfig, open_store
from rmqclient.store.errors import StoreFull
from rmqclient.store.files import mapped_file
from rmqclient.store.files.file_queue import FIRST_BLOCKS
from rmqclient.store.inspect.verify import verify
from rmqclient.store.log import consume_queue
from tests.support.stores import QUEUE, TOPIC, appender_of

ENTRY = consume_queue.ENTRY.size
FIRST = FIRST_BLOCKS // ENTRY
"""Messages of a queue whose entries have blocks from the begin."""

CONFIG = StoreConfig(commit_log_file_bytes=4 << 20, max_body_bytes=1 << 20, consume_queue_file_entries=10_000)


def send(store: MessageStore, messages: int) -> None:
    appender = appender_of(store)
    while messages > 0:
        appender.append_batch([Message(TOPIC, b"body")] * min(100, messages))
        messages -= 100
    store.appenders.end(appender)


def files_of(root: Path) -> list[Path]:
    return sorted((root / consume_queue.DIRECTORY / TOPIC / "0").iterdir())


def on_disk(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_a_queue_takes_the_disk_that_its_messages_need(tmp_path: Path) -> None:
    with open_store(tmp_path, CONFIG, housekeeping=False) as store:
        send(store, 100)
        (file,) = files_of(tmp_path)
        assert file.stat().st_size == CONFIG.consume_queue_file_bytes, "a broker loads no other size"
        assert on_disk(file) == FIRST_BLOCKS
        send(store, 2 * FIRST)
        assert 2 * FIRST * ENTRY < on_disk(file) <= 4 * FIRST_BLOCKS

        # And a queue that has filled a file will fill the next one
        send(store, 9_000)
        assert len(files_of(tmp_path)) == 2
        assert all(on_disk(file) >= CONFIG.consume_queue_file_bytes for file in files_of(tmp_path))
        assert store.topics.max_offset(QUEUE) == 100 + 2 * FIRST + 9_000
    assert verify(tmp_path) == []


def test_a_batch_over_two_files_leaves_no_hole_in_the_first(tmp_path: Path) -> None:
    config = StoreConfig(commit_log_file_bytes=4 << 20, max_body_bytes=1 << 20, consume_queue_file_entries=5_000)
    with open_store(tmp_path, config, housekeeping=False) as store:
        appender = appender_of(store)
        appender.append(Message(TOPIC, b"first"))
        appender.append_batch([Message(TOPIC, b"body")] * 5_000)
        whole, last = files_of(tmp_path)
        assert on_disk(whole) >= config.consume_queue_file_bytes
        assert on_disk(last) >= ENTRY
        assert store.messages.at(QUEUE, 5_000).body == b"body"
    assert verify(tmp_path) == []


def test_who_finds_no_room_for_the_entries_stores_nothing_and_goes_on_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bool:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with open_store(tmp_path, CONFIG, housekeeping=False) as store:
        # Given a queue whose entries have come to the end of their blocks
        appender = appender_of(store)
        for _ in range(FIRST):
            appender.append(Message(TOPIC, b"body"))
        end = store.state.published_to

        # When the disk is full
        with monkeypatch.context() as patch:
            patch.setattr(mapped_file, "reserve_blocks", refuse)
            with pytest.raises(StoreFull, match="cannot have blocks"):
                appender.append(Message(TOPIC, b"one more"))
        assert store.state.published_to == end
        assert store.topics.max_offset(QUEUE) == FIRST

        # Then it goes on when there is room
        assert appender.append(Message(TOPIC, b"one more")).queue_offset == FIRST


def test_a_file_system_without_such_blocks_has_all_of_them_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_file, "reserve_blocks", lambda *_: False)
    with open_store(tmp_path, CONFIG, housekeeping=False) as store:
        send(store, 2 * FIRST)
        (file,) = files_of(tmp_path)
        assert on_disk(file) >= CONFIG.consume_queue_file_bytes


def test_recovery_gives_blocks_to_the_entries_that_it_writes(tmp_path: Path) -> None:
    # Given a store whose queue is gone
    with open_store(tmp_path, CONFIG, housekeeping=False) as store:
        send(store, 3_000)
    for file in files_of(tmp_path):
        file.unlink()

    # When it is opened, the queue has its entries again, and no more of the disk than they need
    with open_store(tmp_path, CONFIG, housekeeping=False) as store:
        assert store.topics.max_offset(QUEUE) == 3_000
        (file,) = files_of(tmp_path)
        assert 3_000 * ENTRY <= on_disk(file) <= 8 * FIRST_BLOCKS

        # And what is sent then stands behind them, though this process did not make the file
        send(store, 2_000)
    assert verify(tmp_path) == []
