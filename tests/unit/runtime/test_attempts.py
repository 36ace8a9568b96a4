"""Delivery attempts of the message that an ordered queue stands at, over owners, restarts and finished messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.store import MessageQueue, MessageStore, open_store
from tests.support.stores import abandon, grant_of
from tests.unit.kernel.test_acknowledgement import QUEUE, SMALL, SPAN, append


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    opened = open_store(tmp_path, SMALL, housekeeping=False)
    append(opened, 100)
    yield opened
    opened.close()


def attempts(store: MessageStore, count: int, queue: MessageQueue = QUEUE) -> list[int]:
    """Become the owner, begin the oldest unfinished message so often, and return the numbers of the attempts."""
    grant = grant_of(store, "group", queue)
    message = grant.take(1, SPAN)[0]
    found = []
    for _ in range(count):
        assert grant.begin(message)
        found.append(message.delivery_attempt)
    return found


def test_the_next_owner_counts_on(store: MessageStore) -> None:
    assert attempts(store, 2) == [1, 2]
    assert attempts(store, 3) == [3, 4, 5]


@pytest.mark.parametrize("clean", [True, False])
def test_attempts_are_counted_on_after_everybody_has_left_or_died(tmp_path: Path, clean: bool) -> None:
    store = open_store(tmp_path, SMALL, housekeeping=False)
    append(store, 100)
    assert attempts(store, 2) == [1, 2]
    store.close() if clean else abandon(store)
    with open_store(tmp_path, housekeeping=False) as reopened:
        assert attempts(reopened, 1) == [3]


def test_a_finished_message_leaves_no_attempts_to_the_next_one_or_to_itself(store: MessageStore) -> None:
    assert attempts(store, 4) == [1, 2, 3, 4]
    assert grant_of(store, "group", QUEUE).acknowledge_offsets([0])
    (slot,) = store.groups
    assert slot.load("held_offset") == 0
    assert attempts(store, 2) == [1, 2]


def test_another_message_begins_with_its_own_first_attempt(store: MessageStore) -> None:
    grant = grant_of(store, "group", QUEUE)
    first, second = grant.take(2, SPAN)
    for message, attempt in ((first, 1), (first, 2), (second, 1), (first, 1)):
        assert grant.begin(message)
        assert message.delivery_attempt == attempt


def test_an_owner_of_the_past_begins_nothing_and_counts_nothing(store: MessageStore) -> None:
    late = grant_of(store, "group", QUEUE)
    (message,) = late.take(1, SPAN)
    assert attempts(store, 1) == [1]
    assert not late.begin(message)
    assert attempts(store, 1) == [2]
