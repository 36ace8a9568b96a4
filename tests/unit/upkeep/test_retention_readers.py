"""Readers and consumers beside a removal: they go on at the oldest message and know what they missed."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Semaphore

import pytest

from rmqclient.admin import Admin
from rmqclient.consuming.reader import Reader
from rmqclient.store import Message, MessageStore, QueueGrant, layout, open_store
from rmqclient.store.errors import MessageExpired
from rmqclient.store.inspect.reading import open_reader
from rmqclient.store.inspect.verify import verify
from tests.support.stores import QUEUE, SMALL, SPAN, TOPIC, appender_of, grant_of
from tests.unit.upkeep.retained import A_FILE, BODY_BYTES, fill, force


@pytest.mark.guarantee("G12")
def test_a_consumer_that_is_behind_goes_on_at_the_oldest_message_and_knows_how_many_it_missed(
    store: MessageStore,
) -> None:
    # Given a consumer that has finished three messages, taken two more, and then slept
    fill(store, 5)
    grant = grant_of(store)
    first = grant.take(5, SPAN)
    assert grant.acknowledge_offsets([0, 1, 2])
    force(store)

    # Then it goes on at the oldest one
    low, high = store.topics.min_offset(QUEUE), store.topics.max_offset(QUEUE)
    assert low == 4 * A_FILE
    taken = grant.take(SPAN, SPAN)
    assert [message.queue_offset for message in taken] == list(range(low, high))
    assert (grant.expired, grant.damaged) == (low - 5, [])
    assert grant.committed_offset == low

    # And the late ones can be acknowledged, without effect
    assert grant.acknowledge(first[3])
    assert grant.acknowledge_offsets(list(range(low, high)))
    assert grant.committed_offset == high
    assert verify(store.root) == []


def test_a_message_finished_out_of_order_is_not_counted_as_missed(store: MessageStore) -> None:
    fill(store, 5)
    grant = grant_of(store)
    grant.take(10, SPAN)
    assert grant.acknowledge_offsets([4, 7, 4 * A_FILE])
    again = grant_of(store)
    force(store)
    taken = again.take(SPAN, SPAN)
    assert again.expired == 4 * A_FILE - 2
    assert taken[0].queue_offset == 4 * A_FILE + 1, "what was acknowledged above the minimum stays acknowledged"


def test_a_consumer_far_behind_jumps_over_more_than_the_bitmap(store: MessageStore) -> None:
    store.topics.create(TOPIC, 1)
    appender = appender_of(store)
    for _ in range(30):
        appender.append_batch([Message(TOPIC, bytes(100))] * 60)
    grant = grant_of(store)
    assert grant.take(1, SPAN)
    assert grant.acknowledge_offsets([0])
    for _ in range(60):
        appender.append_batch([Message(TOPIC, bytes(100))] * 60)
    store.flusher.flush_thorough()
    force(store)
    low = store.topics.min_offset(QUEUE)
    assert low > layout.ACK_WINDOW
    assert grant.take(1, SPAN)[0].queue_offset == low
    assert grant.expired == low - 1
    assert verify(store.root) == []


def test_a_consumer_meets_a_minimum_that_nobody_has_told_the_queue_of(store: MessageStore) -> None:
    # Given a housekeeper that was killed after it removed files and before it saw to the queues
    fill(store, 5)
    size = SMALL.commit_log_file_bytes
    grant = grant_of(store)
    assert len(grant.take(3, SPAN)) == 3  # has the first file mapped
    store.state.raise_min_offset(3 * size)
    for base in (0, size, 2 * size):
        store.log_files.remove(base)
    assert store.topics.min_offset(QUEUE) == 0

    # Then the consumer finds out by itself, and so does one that begins now
    for consumer in (grant, grant_of(store, "another")):
        assert consumer.take(1, SPAN)[0].queue_offset == 3 * A_FILE
        assert consumer.damaged == []
    assert store.topics.min_offset(QUEUE) == 3 * A_FILE


def test_an_old_owner_moves_no_offset(store: MessageStore) -> None:
    fill(store, 5)
    old = grant_of(store)
    new = grant_of(store)
    force(store)
    assert old.take(10, SPAN) == []
    assert new.committed_offset == 0
    assert new.take(1, SPAN)[0].queue_offset == 4 * A_FILE


@pytest.mark.guarantee("G12")
def test_beside_senders_and_removals_every_message_is_either_taken_or_counted_as_missed(store: MessageStore) -> None:
    # Given a sender and a removal that never rest, each with a handle of its own, and consumers of different speed
    with (
        open_store(store.root, SMALL, housekeeping=False) as removing,
        open_store(store.root, SMALL, housekeeping=False) as slow,
        ThreadPoolExecutor(4) as pool,
    ):
        store.topics.create(TOPIC, 1)
        grants = [grant_of(store, "quick"), grant_of(slow, "slow")]
        passes = Semaphore(0)
        sent = pool.submit(append_many, store, 3_000, passes)
        removed = pool.submit(remove_meanwhile, removing, sent, passes)
        consumed = [pool.submit(consume, grants[0], 200, sent), pool.submit(consume, grants[1], 1, sent)]
        assert removed.result(60) > 5
        for grant, offsets in zip(grants, consumed, strict=True):
            taken = offsets.result(60)
            assert taken == sorted(set(taken))
            assert len(taken) + grant.expired == 3_000
            assert grant.damaged == []
            assert grant.committed_offset == 3_000
        assert verify(store.root) == []


def append_many(store: MessageStore, messages: int, passes: Semaphore) -> None:
    """Append, and let the removal pass by now and then, so that it does on a busy machine, too."""
    appender = appender_of(store)
    for number in range(messages):
        appender.append(Message(TOPIC, bytes(BODY_BYTES)))
        if number % (messages // 10) == 0:
            assert passes.acquire(timeout=60)


def remove_meanwhile(store: MessageStore, sent: Future[None], passes: Semaphore) -> int:
    removed = 0
    while not sent.done():
        store.flusher.flush_queues()
        store.flusher.flush_log()
        removed += len(force(store))
        passes.release()
    return removed


def consume(grant: QueueGrant, batch: int, sent: Future[None]) -> list[int]:
    """Take and finish messages; what is taken is not old when it is finished."""
    taken: list[int] = []
    while not sent.done() or grant.has_more:
        offsets = [message.queue_offset for message in grant.take(batch, SPAN)]
        assert grant.acknowledge_offsets(offsets)
        taken += offsets
    return taken


def test_a_removed_message_is_told_from_a_damaged_one(store: MessageStore) -> None:
    fill(store, 5)
    first = store.messages.at(QUEUE, 0)
    force(store)
    for offset in (0, 4 * A_FILE - 1):
        with pytest.raises(MessageExpired, match=f"begins at {4 * A_FILE} now"):
            store.messages.at(QUEUE, offset)
    with pytest.raises(MessageExpired, match="was removed"):
        store.messages.read(first.commit_log_offset)
    assert first.body == bytes(BODY_BYTES), "a message that was read stays readable"
    assert store.messages.at(QUEUE, 4 * A_FILE).queue_offset == 4 * A_FILE


def test_whoever_prints_messages_goes_on_at_the_oldest_one(store: MessageStore) -> None:
    fill(store, 5)
    messages = Reader(store).tail(TOPIC, start="earliest", follow=False)
    assert next(messages).queue_offset == 0
    force(store)
    assert [message.queue_offset for message in messages][-1] == store.topics.max_offset(QUEUE) - 1
    again = Reader(store).tail(TOPIC, start="earliest", follow=False)
    assert next(again).queue_offset == 4 * A_FILE


def test_a_reader_without_locks_goes_on_at_the_oldest_record(store: MessageStore) -> None:
    fill(store, 5)
    steps = open_reader(store.root).steps()
    offsets = [next(steps)[0]]
    force(store)
    offsets += [offset for offset, _ in steps]
    assert offsets[1] == 4 * SMALL.commit_log_file_bytes


def test_the_lag_of_a_group_counts_what_is_there(store: MessageStore) -> None:
    fill(store, 5)
    grant_of(store, "slow")
    force(store)
    (lag,) = Admin(store).lag("slow")
    assert lag.lag == store.topics.max_offset(QUEUE) - 4 * A_FILE
