"""Taking and acknowledging against a model, a set of numbers, over grants, restarts and the wrap of the bitmap."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rmqclient.store import Message, MessageQueue, MessageStore, QueueGrant, StoreConfig, TagSet, layout, open_store
from tests.support.stores import abandon, grant_of
from tests.support.sweeps import share_of

QUEUE = MessageQueue("t", 0)
SMALL = StoreConfig(commit_log_file_bytes=1 << 20, max_body_bytes=1_000, consume_queue_file_entries=700)
SPAN = 2_000


def append(store: MessageStore, count: int, tags: str | None = None) -> None:
    appender = store.appenders.make(lambda topic: store.topics.create(topic, 1), lambda body: bytes(str(body), "utf-8"))
    for _ in range(0, count, 100):
        appender.append_batch([Message("t", b"", tags=tags)] * min(100, count))
    store.appenders.close()


class Acknowledging(RuleBasedStateMachine):
    """One queue and one group: what is finished is a set, and what the next owner gets is the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.store = open_store(self.root, SMALL, housekeeping=False)
        self.stored = 0
        self.finished: set[int] = set()
        self.committed = 0
        """The first one that is not finished."""
        self.taken: list[int] = []
        """By the present owner, in order."""

    @initialize(start=st.integers(0, 3_000))
    def begin_anywhere(self, start: int) -> None:
        self.send(3_000)
        self.own(1_000)
        for first in range(0, start, 500):
            self.grant.take(500, SPAN)
            assert self.grant.acknowledge_offsets(list(range(first, first + 500)))
        self.committed = -(-start // 500) * 500
        self.finished = set(range(self.committed))
        self.own(1_000)

    def own(self, _: int) -> None:
        self.grant = grant_of(self.store, "group", QUEUE)
        self.taken = []

    @rule(count=st.sampled_from([100, 700, 2_000]))
    @precondition(lambda self: self.stored < 12_000)
    def send(self, count: int) -> None:
        append(self.store, count)
        self.stored += count

    @rule(limit=st.sampled_from([1, 7, 32, 300, 2_000]))
    def take(self, limit: int) -> None:
        start = max(self.committed, self.taken[-1] + 1) if self.taken else self.committed
        end = min(self.committed + SPAN, self.stored)
        expected = [offset for offset in range(start, end) if offset not in self.finished]
        found = [message.queue_offset for message in self.grant.take(limit, SPAN)]
        assert found == expected[:limit]
        self.taken += found

    @rule(data=st.data(), size=st.sampled_from([1, 2, 64, 500]))
    @precondition(lambda self: self.open_offsets)
    def acknowledge(self, data: st.DataObject, size: int) -> None:
        offsets = self.open_offsets
        start = data.draw(st.integers(0, len(offsets) - 1))
        self.finish(offsets[start : start + size])

    @rule(step=st.integers(2, 70))
    @precondition(lambda self: self.open_offsets)
    def acknowledge_every_so_many(self, step: int) -> None:
        self.finish(self.open_offsets[::-step])

    @rule()
    @precondition(lambda self: self.open_offsets)
    def acknowledge_all(self) -> None:
        self.finish(self.open_offsets)

    @rule(limit=st.sampled_from([1, 3, 32]), times=st.integers(1, 40))
    def work(self, limit: int, times: int) -> None:
        for _ in range(times):
            self.take(limit)
            self.finish(self.open_offsets)

    @rule()
    def acknowledge_again(self) -> None:
        assert self.grant.acknowledge_offsets(sorted(self.finished)[-50:])

    @rule()
    def hand_over(self) -> None:
        late = self.grant
        self.own(0)
        assert not late.valid
        assert not late.acknowledge_offsets([self.committed])
        assert late.take(10, SPAN) == []

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.store.close() if clean else abandon(self.store)
        self.store = open_store(self.root, housekeeping=False)
        self.own(0)

    @invariant()
    def the_committed_offset_is_the_first_one_that_is_not_finished(self) -> None:
        if self.stored:
            assert self.grant.committed_offset == self.committed

    @property
    def open_offsets(self) -> list[int]:
        self.taken = [offset for offset in self.taken if offset not in self.finished or offset == self.taken[-1]]
        return [offset for offset in self.taken if offset not in self.finished]

    def finish(self, offsets: list[int]) -> None:
        assert self.grant.acknowledge_offsets(offsets)
        self.finished |= set(offsets)
        while self.committed in self.finished:
            self.committed += 1

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.root)


TestAcknowledging = Acknowledging.TestCase
TestAcknowledging.settings = settings(max_examples=share_of(40), stateful_step_count=30, deadline=None)


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    opened = open_store(tmp_path, SMALL, housekeeping=False)
    append(opened, 3_000)
    return opened


def grant_with_tags(store: MessageStore, *tags: str) -> QueueGrant:
    slot = store.groups.find_or_add("group", store.topics.slot(QUEUE), 0)
    return store.grants.grant(slot, slot.load("epoch"), TagSet(tags))


def test_what_was_finished_ahead_is_not_taken_when_the_committed_offset_has_passed_it(store: MessageStore) -> None:
    # Given an owner that has finished the second half of a batch only
    grant = grant_of(store, "group", QUEUE)
    assert grant.acknowledge_offsets(list(range(32, 64)))

    # When the next one finishes what it takes just up to there, so that the committed offset passes the second half
    following = grant_of(store, "group", QUEUE)
    taken = [message.queue_offset for message in following.take(32, SPAN)]
    assert following.acknowledge_offsets(taken)
    assert following.committed_offset == 64

    # Then it goes on behind it
    assert [message.queue_offset for message in following.take(2, SPAN)] == [64, 65]
    store.close()


def test_nothing_is_taken_at_the_span_or_beyond(store: MessageStore) -> None:
    grant = grant_of(store, "group", QUEUE)
    assert len(grant.take(5_000, 2_000)) == 2_000
    assert grant.take(5_000, 2_000) == []
    assert grant.acknowledge_offsets([0, 2])
    assert [message.queue_offset for message in grant.take(5_000, 2_000)] == [2_000]
    store.close()


def test_an_offset_beyond_the_bitmap_is_a_mistake_that_changes_nothing(store: MessageStore) -> None:
    grant = grant_of(store, "group", QUEUE)
    assert grant.acknowledge_offsets([layout.ACK_WINDOW - 1])
    with pytest.raises(ValueError, match="beyond 2048"):
        grant.acknowledge_offsets([layout.ACK_WINDOW])
    assert grant.committed_offset == 0
    assert grant.take(2_500, 2_500)[-1].queue_offset != layout.ACK_WINDOW - 1
    store.close()


def test_what_the_tags_do_not_match_is_finished_by_taking(store: MessageStore) -> None:
    append(store, 100, tags="wanted")
    append(store, 100, tags="other")
    grant = grant_with_tags(store, "wanted", "never")
    taken = []
    while batch := grant.take(32, SPAN):
        taken += [message.queue_offset for message in batch]
        assert grant.acknowledge_offsets([message.queue_offset for message in batch])
    assert taken == list(range(3_000, 3_100))
    assert (grant.committed_offset, grant.skipped) == (3_200, 3_100)
    store.close()


def test_tags_with_the_same_hash_are_told_apart_by_the_record(store: MessageStore) -> None:
    append(store, 100, tags="BB")  # "Aa" and "BB" have the same Java hash
    grant = grant_with_tags(store, "Aa")
    assert grant.take(5_000, SPAN) == []
    assert grant.take(5_000, SPAN) == []
    assert grant.committed_offset == 3_100
    store.close()
