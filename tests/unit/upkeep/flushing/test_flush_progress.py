"""What is recorded of flushes: the checkpoint says what is on disk, and no more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rmqclient import Producer
from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.files import file_queue
from rmqclient.store.settings import checkpoint
from tests.support.stores import SMALL
from tests.unit.upkeep.flushing.flushed import mark, producer_of


def test_the_checkpoint_says_what_was_flushed_and_not_more(store: MessageStore) -> None:
    producer = producer_of(store, SMALL)
    first = producer.send(Message("t", b"body"))
    store.flusher.flush_thorough()
    assert (mark(store).flushed_to, mark(store).dispatched_to) == (first.commit_log_end,) * 2
    second = producer.send(Message("t", b"body"))
    store.flusher.write_checkpoint()
    assert mark(store).flushed_to == first.commit_log_end
    store.flusher.flush()
    store.flusher.write_checkpoint()
    assert (mark(store).flushed_to, mark(store).dispatched_to) == (second.commit_log_end, first.commit_log_end)


def test_two_that_record_at_once_make_one_checkpoint(store: MessageStore) -> None:
    producer_of(store, SMALL).send(Message("t", b"body"))
    store.flusher.flush()
    for _ in range(20):
        (store.root / checkpoint.FILE_NAME).unlink(missing_ok=True)
        with ThreadPoolExecutor(4) as pool:
            for written in [pool.submit(store.flusher.write_checkpoint) for _ in range(8)]:
                written.result(60)
    assert not store.state.poisoned
    assert mark(store).flushed_to == store.state.flushed_to


def test_a_housekeeper_that_has_flushed_no_queue_keeps_the_mark_of_the_last_one(
    store: MessageStore, other: MessageStore
) -> None:
    result = producer_of(store).send(Message("t", b"body"))
    store.flusher.flush_thorough()
    producer_of(store).send(Message("t", b"body"))
    other.flusher.write_checkpoint()
    assert mark(store).dispatched_to == result.commit_log_end


def test_only_queues_with_new_entries_are_flushed_and_none_after_a_clean_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    named: list[str] = []
    monkeypatch.setattr(file_queue, "sync_file", lambda path: flushed.append(path.parent.name))
    monkeypatch.setattr(file_queue, "sync_directory", lambda path: named.append(path.name))
    for opening, queue_names in enumerate([["0", "1", "2", "3"], []]):
        with open_store(tmp_path, SMALL, housekeeping=False) as store, Producer(store) as producer:
            producer.create_topic("t", 4)
            for _ in range(0 if opening else 4):
                producer.send(Message("t", b"body"))
            store.flusher.flush_thorough()
            assert (flushed, named) == (queue_names, queue_names)
            sent_to = str(producer.send(Message("t", b"body")).queue.queue_id)
            store.flusher.flush_thorough()
            assert flushed == [*queue_names, sent_to]
            assert named == queue_names + [sent_to] * opening  # a name that this process knows is durable stays so
        flushed.clear()
        named.clear()


def test_what_is_appended_while_the_queues_are_counted_is_flushed_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given an append that comes between the counting of the queues and the mark that a checkpoint will have
    flushed: list[Path] = []
    with open_store(tmp_path, SMALL, housekeeping=False) as store, Producer(store) as producer:
        producer.create_topic("t", 1)
        store.flusher.flush_thorough()
        monkeypatch.setattr(file_queue, "sync_file", flushed.append)
        count = store.flusher._counted_to
        monkeypatch.setattr(store.flusher, "_counted_to", lambda: (producer.send(Message("t", b"body")), count())[1])

        # When they are flushed, then its entry, which the mark is above, is on the disk
        store.flusher.flush_queues()
        store.flusher.flush()
        store.flusher.write_checkpoint()
        assert mark(store).dispatched_to == store.state.published_to
        assert mark(store).queue_ends == 0
        assert [path.parent.name for path in flushed] == ["0"]
        monkeypatch.undo()


def test_an_append_under_way_is_not_counted_as_dispatched(store: MessageStore) -> None:
    # Given an append that has published its record, and not yet its queue
    producer = producer_of(store)
    first = producer.send(Message("t", b"body"))
    second = producer.send(Message("t", b"body"))
    store.state.append_stage = 2

    # Then its entry may not be on the disk when the queues were flushed
    store.flusher.flush_thorough()
    assert (mark(store).flushed_to, mark(store).dispatched_to) == (second.commit_log_end, first.commit_log_end)
    store.state.append_stage = 0
    store.flusher.flush_thorough()
    assert mark(store).dispatched_to == second.commit_log_end
