"""Fences: an ordered queue is kept for the client that trusts its lock, while its server is dead and afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqclient.broker.groups import fences as fences_of
from rmqclient.store import MessageQueue, open_store
from rmqclient.store.files.file_lock import MEMBER_BYTES
from rmqclient.store.runtime.subscription import REMOTE
from tests.broker.groups.house import GROUP, TOPIC, House, house_of, stand_still


@contextmanager
def next_server(house: House) -> Iterator[House]:
    """Let a server die, as far as others can see, and start another one over its directory."""
    with open_store(house.root) as store:
        for seat in store.members().roll.all():
            house.store.lock.unlock(MEMBER_BYTES + seat.slot)  # what the kernel does at a death
        following = House(house.root, store)
        try:
            yield following
        finally:
            following.broker.close()
            following.loop.close()


def gets(house: House, queue_id: int, client_id: str = "a-local") -> bool:
    """Tell whether a local worker gets a queue."""
    with open_store(house.root) as other:
        worker = other.members().join(GROUP, TOPIC, client_id, f"tags *{REMOTE}")
        epoch = worker.take(worker.queue_slot(MessageQueue(TOPIC, queue_id)), 10_000)
        worker.leave()
    return epoch is not None


@pytest.fixture
def locked(house: House) -> House:
    """A server at which client ``one`` has locked queues 0 and 3 in order, and pulls them."""
    house.fill(40)
    client = house.member("one")
    assert client.lock(0, 3) == {0, 3}
    assert client.may_pull(0)
    assert client.may_pull(3)
    return house


@pytest.mark.guarantee("G47")
def test_an_ordered_queue_is_kept_for_its_client_when_the_server_dies(locked: House) -> None:
    with next_server(locked) as house:
        assert not gets(house, 0)
        assert gets(house, 0, "one")


@pytest.mark.guarantee("G47")
def test_a_commit_that_comes_before_the_heartbeat_leaves_the_queue_to_its_client(locked: House) -> None:
    with next_server(locked) as house:
        assert house.client("one").commit(0, 3) == 0
        assert house.committed(0) == 3
        assert not gets(house, 0)


def test_another_member_commits_nothing_of_a_queue_that_is_kept(locked: House) -> None:
    with next_server(locked) as house:
        assert house.member("two").commit(0, 3) != 0
        assert house.member("one").commit(0, 5) == 0
        assert house.member("one").commit(0, 4) != 0  # back
        assert house.committed(0) == 5


@pytest.mark.guarantee("G47")
def test_a_pull_that_comes_before_the_heartbeat_waits_for_it(locked: House) -> None:
    with next_server(locked) as house:
        client = house.client("one")
        assert not client.may_pull(0)
        client.beat()
        assert client.may_pull(0)
        assert not gets(house, 0)


@pytest.mark.guarantee("G47")
def test_a_worker_that_stood_still_leaves_a_kept_queue_to_its_client(
    locked: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a server that has died, and a worker of this host
    locked.broker.close()
    queue = MessageQueue(TOPIC, 0)
    with open_store(locked.root) as other:
        worker = other.members().join(GROUP, TOPIC, "a-local", f"tags *{REMOTE}")

        # When the host stands still, as does the client there, then it may still rely on its lock
        stand_still(fences_of.FENCE_S + 1, monkeypatch)
        assert worker.take(worker.queue_slot(queue), 10_000) is None
        worker.leave()


@pytest.mark.guarantee("G47")
def test_the_next_server_knows_that_a_queue_is_handled_in_order(locked: House) -> None:
    with next_server(locked) as house:
        first, second = house.member("one"), house.member("two")
        assert first.may_pull(3)
        assert second.lock(3) == set()
        first.members()
        first.commit(3, 0)
        house.look()
        assert second.lock(3) == set()  # it has to end what it is at
        first.unlock(3)
        assert second.lock(3) == {3}


@pytest.mark.guarantee("G47")
def test_a_connection_that_ends_at_the_next_server_leaves_the_queue_to_its_client(locked: House) -> None:
    with next_server(locked) as house:
        first, second = house.member("one"), house.member("two")
        assert first.may_pull(3)
        first.close()
        assert second.lock(3) == set()
        assert not gets(house, 3)


@pytest.mark.guarantee("G47")
def test_a_second_death_before_the_lock_is_renewed_leaves_the_queue_to_its_client(locked: House) -> None:
    with next_server(locked) as second:
        assert second.member("one").may_pull(0)
        with next_server(second) as third:
            assert not gets(third, 0)
            assert third.member("one").may_pull(0)


def test_a_lock_is_renewed_before_the_heartbeat_by_its_client_alone(
    locked: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = locked.store.groups.find(GROUP, locked.store.topics.slot(MessageQueue(TOPIC, 0)))
    assert slot is not None
    with next_server(locked) as house:
        assert house.client("two").lock(0) == set()
        left_ns = slot.fence_left_ns
        monkeypatch.setattr(fences_of, "FENCE_S", 50.0)
        assert house.client("one").lock(0) == {0}
        assert slot.fence_left_ns > left_ns + 10_000_000_000
        assert not gets(house, 0)


@pytest.mark.guarantee("G47")
def test_a_client_gets_no_lock_before_its_heartbeat_when_others_may_have_the_queue(locked: House) -> None:
    with next_server(locked) as house:
        house.client("one").unlock(0)
        assert gets(house, 0)
        assert house.client("one").lock(0) == set()
        assert house.member("one").lock(0) == {0}


def test_another_client_unlocks_nothing_that_is_kept(locked: House) -> None:
    with next_server(locked) as house:
        house.client("two").unlock(0)
        assert not gets(house, 0)


@pytest.mark.guarantee("G47")
def test_a_server_that_stops_in_order_leaves_a_locked_queue_to_its_client(locked: House) -> None:
    locked.broker.close()
    assert not gets(locked, 0)
    assert gets(locked, 0, "one")


@pytest.mark.guarantee("G47")
def test_a_queue_is_kept_when_no_process_had_the_directory_open_meanwhile(tmp_path: Path) -> None:
    with house_of(tmp_path / "store") as house:
        house.fill(40)
        client = house.member("one")
        assert client.lock(0) == {0}
        assert client.may_pull(0)
    assert not gets(house, 0)
    with house_of(tmp_path / "store") as following:
        assert not following.client("one").may_pull(0)
        assert not gets(following, 0)
        assert following.member("one").may_pull(0)


def test_a_released_queue_is_fenced_no_more(house: House) -> None:
    first = house.member("one")
    first.lock(0)
    assert first.may_pull(0)
    first.unlock(0)
    assert gets(house, 0)
