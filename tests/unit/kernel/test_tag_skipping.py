"""What the tags of a grant do not match is finished in bulk, by the word of the bitmap: against a set of numbers."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqclient.store import Message, MessageQueue, MessageStore, QueueGrant, StoreConfig, TagSet, layout, open_store
from rmqclient.store.errors import StoreBusy
from rmqclient.store.kernel._kernel import Mapping
from tests.support.sweeps import share_of

QUEUE = MessageQueue("t", 0)
FILE_ENTRIES = 700
SMALL = StoreConfig(commit_log_file_bytes=1 << 20, max_body_bytes=1_000, consume_queue_file_entries=FILE_ENTRIES)

TAGS = {"wanted": "wanted", "other": "other", "none": None, "same hash": "Aa", "collides": "BB"}
WANTED = frozenset(("wanted", "Aa"))
"""A message with the tag "BB" has the hash of "Aa", and is found out by its record alone."""

runs = st.lists(
    st.tuples(
        st.sampled_from(["other", "other", "none", "wanted", "same hash", "collides"]),
        st.sampled_from([1, 1, 2, 3, 30, 63, 64, 65, 130, 699, 701, 2_100]),
    ),
    min_size=1,
    max_size=12,
)


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp())
    yield path
    shutil.rmtree(path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path, SMALL, housekeeping=False) as opened:
        yield opened


def append(store: MessageStore, tags: Sequence[str | None], topic: str = "t") -> None:
    appender = store.appenders.make(lambda name: store.topics.create(name, 1), lambda body: bytes(str(body), "utf-8"))
    for first in range(0, len(tags), 100):
        appender.append_batch([Message(topic, b"", tags=tag) for tag in tags[first : first + 100]])
    store.appenders.close()


def grant_of(store: MessageStore, *tags: str, queue: MessageQueue = QUEUE) -> QueueGrant:
    slot = store.groups.find_or_add("group", store.topics.slot(queue), 0)
    epoch = slot.load("epoch") + 1
    slot.store("epoch", epoch)
    return store.grants.grant(slot, epoch, TagSet(tags))


@pytest.mark.guarantee("G15")
@settings(max_examples=share_of(60), deadline=None)
@given(
    runs=runs,
    limit=st.sampled_from([1, 2, 7, 32, 1_000]),
    span=st.sampled_from([1, 2, 64, 65, 700, 2_000, 2_047, 5_000]),
    late=st.integers(0, 4),
    owners=st.integers(1, 3),
)
def test_exactly_the_wanted_ones_are_taken_each_once_and_everything_else_is_finished(
    root: Path, runs: list[tuple[str, int]], limit: int, span: int, late: int, owners: int
) -> None:
    # Given any runs of tags, and owners one after the other that acknowledge some messages late
    tags = list(itertools.chain.from_iterable([TAGS[kind]] * count for kind, count in runs))
    wanted = [offset for offset, tag in enumerate(tags) if tag in WANTED]
    with tempfile.TemporaryDirectory(dir=root) as directory, open_store(directory, SMALL, housekeeping=False) as store:
        append(store, tags)
        finished: set[int] = set()
        for owner in range(owners):
            # When each takes as much as it is given, the last one all there is
            grant = grant_of(store, *WANTED)
            waiting: list[int] = []
            for _ in itertools.count():
                batch = [message.queue_offset for message in grant.take(limit, span)]
                if not batch and not waiting and not grant.has_more:
                    break
                assert len(batch) <= limit
                assert finished.isdisjoint(batch)
                waiting += batch
                ready, waiting = (waiting[late:], waiting[:late]) if batch else (waiting, [])
                assert grant.acknowledge_offsets(ready)
                finished |= set(ready)
                missing = [offset for offset in wanted if offset not in finished]
                assert grant.committed_offset <= (missing[0] if missing else len(tags))
                if owner < owners - 1 and len(finished) >= len(wanted) * (owner + 1) // owners:
                    break

        # Then nothing was missed, and nothing is left
        assert sorted(finished) == wanted
        slot = store.groups.find_or_add("group", store.topics.slot(QUEUE), 0)
        assert slot.committed_offset == len(tags)
        assert slot.acknowledged_bits() == 0


@pytest.mark.parametrize("ahead", [0, 1, 63, 64, 100])
def test_a_long_run_is_skipped_by_one_take_up_to_the_wanted_one(store: MessageStore, ahead: int) -> None:
    tags = ["other"] * 9_000
    tags[8_000 + ahead] = "wanted"
    append(store, tags)
    grant = grant_of(store, "wanted")
    assert [message.queue_offset for message in grant.take(32, 2_000)] == [8_000 + ahead]
    assert grant.committed_offset == 8_000 + ahead
    assert grant.skipped == min(8_999, 8_000 + ahead + 1_999)
    assert grant.acknowledge_offsets([8_000 + ahead])
    assert grant.take(32, 2_000) == []
    assert (grant.committed_offset, grant.skipped) == (9_000, 8_999)


def test_a_message_in_flight_keeps_the_skip_within_the_span(store: MessageStore) -> None:
    append(store, ["wanted", *["other"] * 5_000])
    grant = grant_of(store, "wanted")
    assert len(grant.take(32, 100)) == 1
    assert grant.take(32, 100) == []
    assert (grant.committed_offset, grant.next_offset) == (0, 100)
    assert grant.acknowledge_offsets([0])
    assert grant.committed_offset == 100
    assert grant.take(32, 100) == []
    assert grant.committed_offset == 5_001


def test_a_span_above_the_bitmap_is_one_of_the_bitmap(store: MessageStore) -> None:
    append(store, ["wanted", *["other"] * 5_000])
    grant = grant_of(store, "wanted")
    assert len(grant.take(32, 10_000)) == 1
    assert grant.next_offset == layout.ACK_WINDOW
    assert grant.acknowledge_offsets([0])
    assert grant.take(32, 10_000) == []
    assert grant.committed_offset == 5_001


def test_what_is_sent_after_a_skip_is_looked_at_by_the_next_take(store: MessageStore) -> None:
    append(store, ["other"] * 1_500)
    grant = grant_of(store, "wanted")
    assert grant.take(32, 2_000) == []
    assert not grant.has_more
    append(store, ["other"] * 10)
    assert grant.has_more
    assert grant.take(32, 2_000) == []
    assert grant.committed_offset == 1_510


def test_who_has_lost_the_queue_skips_nothing_any_more(store: MessageStore) -> None:
    append(store, [*["other"] * 300, "wanted"])
    late = grant_of(store, "wanted")
    following = grant_of(store, "wanted")
    assert late.take(32, 2_000) == []
    assert late.committed_offset == 0
    assert [message.queue_offset for message in following.take(32, 2_000)] == [300]
    assert following.committed_offset == 300


def test_who_loses_the_queue_while_skipping_skips_nothing_more(store: MessageStore) -> None:
    # Given a grant whose queue is granted to somebody else while it looks for its second file
    append(store, ["other"] * 3 * FILE_ENTRIES)
    late = grant_of(store, "wanted")
    map_file = store.grants.queue_file
    following: list[QueueGrant] = []

    def lose(slot: int, queue_offset: int) -> tuple[Mapping, int] | None:
        if queue_offset >= FILE_ENTRIES and not following:
            following.append(grant_of(store, "wanted"))
        return map_file(slot, queue_offset)

    store.grants.queue_file = lose  # type: ignore[method-assign]

    # Then it finishes nothing of the second file, and the other one everything
    assert late.take(32, 2_000) == []
    assert following[0].committed_offset == FILE_ENTRIES
    assert following[0].take(32, 2_000) == []
    assert following[0].committed_offset == 3 * FILE_ENTRIES


def test_a_damaged_entry_in_a_run_of_unwanted_ones_is_reported(store: MessageStore) -> None:
    # Given an entry that points below the begin of the log, between good ones
    append(store, ["other"] * 500)
    grant = grant_of(store, "wanted")
    store.state.words.store(layout.RUNTIME_HEADER.at["min_offset"], store.messages.at(QUEUE, 200).commit_log_offset)
    mapped = store.grants.queue_file(store.topics.slot(QUEUE), 300)
    assert mapped is not None
    memoryview(mapped[0])[300 * 20 : 300 * 20 + 8] = (5).to_bytes(8, "big")

    # Then it is stepped over and told
    assert grant.take(32, 2_000) == []
    assert [damaged[:2] for damaged in grant.damaged] == [(300, 5)]
    assert (grant.expired, grant.committed_offset) == (200, 500)


def test_an_entry_of_a_removed_record_is_counted_as_expired_and_not_as_skipped(store: MessageStore) -> None:
    # Given a log whose first messages are below its begin, and a queue that does not know it yet
    append(store, ["other"] * 500)
    grant = grant_of(store, "wanted")
    begin = store.messages.at(QUEUE, 200).commit_log_offset
    store.state.words.store(layout.RUNTIME_HEADER.at["min_offset"], begin)

    # When it is taken from
    assert grant.take(32, 2_000) == []

    # Then what is gone is told from what is not wanted
    assert (grant.expired, grant.skipped, grant.committed_offset) == (200, 300, 500)


def test_a_skip_that_cannot_have_the_mutex_says_so_and_is_done_by_the_next_take(tmp_path: Path) -> None:
    # Given somebody who keeps the mutex of the group-queue
    with open_store(tmp_path, replace(SMALL, lock_timeout_ms=50), housekeeping=False) as store:
        append(store, ["wanted", *["other"] * 300, "wanted"])
        grant = grant_of(store, "wanted")
        slot = store.groups.find_or_add("group", store.topics.slot(QUEUE), 0)
        with slot.locked(1_000), pytest.raises(StoreBusy, match="waited 50 ms to skip messages"):
            grant.take(32, 2_000)
        assert (grant.committed_offset, slot.acknowledged_bits()) == (0, 0)

        # When it is free again, nothing was lost and nothing is given twice
        assert [message.queue_offset for message in grant.take(32, 2_000)] == [0, 301]
        assert grant.skipped == 300
