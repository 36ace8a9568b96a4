"""What a grant knows of its group-queue: lease, pause and the word that shows why nothing is taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageQueue, MessageStore, StoreConfig, boottime, open_store
from rmqclient.store.errors import StoreBusy
from rmqclient.store.runtime.group_table import GroupQueueSlot
from tests.support.stores import grant_of

QUEUE = MessageQueue("t", 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path, StoreConfig(lock_timeout_ms=50), housekeeping=False) as opened:
        opened.appenders.make(
            lambda topic: opened.topics.create(topic, 1), lambda body: bytes(str(body), "utf-8")
        ).append(Message("t", b""))
        yield opened


def slot_of(store: MessageStore) -> GroupQueueSlot:
    return store.groups.find_or_add("group", store.topics.slot(QUEUE), 0)


def test_a_grant_has_the_number_of_its_slot(store: MessageStore) -> None:
    store.groups.find_or_add("another", store.topics.slot(QUEUE), 0)
    assert grant_of(store, "group", QUEUE).group_queue == slot_of(store).number == 1


def test_a_grant_sees_a_pause_when_it_is_made(store: MessageStore) -> None:
    grant = grant_of(store, "group", QUEUE)
    assert not grant.paused
    slot_of(store).store("paused", 1)
    assert grant.paused


def test_a_lease_is_over_when_its_end_has_passed(store: MessageStore) -> None:
    # Given a grant without a lease, which is never over
    grant = grant_of(store, "group", QUEUE)
    assert (grant.lease_until, grant.lease_is_over) == (0, False)

    # When it gets one, and another that ends at once
    before = boottime()
    assert grant.renew(60_000)
    assert before + 60_000_000_000 <= grant.lease_until <= boottime() + 60_000_000_000
    assert not grant.lease_is_over
    assert grant.renew(0)

    # Then that is over
    assert grant.lease_is_over


def test_what_a_grant_shows_is_there_for_others(store: MessageStore) -> None:
    grant = grant_of(store, "group", QUEUE)
    assert grant.flow_control == 0
    grant.show(5)
    assert grant.flow_control == slot_of(store).load("flow_control") == 5


def test_a_released_queue_has_no_owner(store: MessageStore) -> None:
    grant = grant_of(store, "group", QUEUE)
    slot_of(store).store("owner", 7)
    assert grant.renew(1_000)
    assert slot_of(store).load("owner") == 7
    assert grant.release()
    assert slot_of(store).load("owner") == 0


def test_an_old_grant_changes_neither_lease_nor_owner(store: MessageStore) -> None:
    # Given a queue that was granted again, to member 7
    old = grant_of(store, "group", QUEUE)
    new = grant_of(store, "group", QUEUE)
    slot_of(store).store("owner", 7)
    assert new.renew(60_000)
    lease_until = new.lease_until

    # Then the old grant is told so, and nothing moves
    assert not old.renew(1)
    assert not old.release()
    assert (new.lease_until, slot_of(store).load("owner")) == (lease_until, 7)


@pytest.mark.parametrize("change", ["renew", "release"])
def test_a_lease_waits_for_the_mutex_as_long_as_the_store_says(store: MessageStore, change: str) -> None:
    grant = grant_of(store, "group", QUEUE)
    with slot_of(store).locked(1_000), pytest.raises(StoreBusy, match="50 ms to change the lease"):
        grant.renew(1_000) if change == "renew" else grant.release()
