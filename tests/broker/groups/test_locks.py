"""Locks: an orderly consumer has a queue for itself until it unlocks it, or until its lock has run out."""

from __future__ import annotations

import pytest

from rmqclient.broker.groups import fences as fences_of
from rmqclient.broker.groups import lease as lease_of
from rmqclient.broker.groups import locks as locks_of
from rmqclient.store import MessageQueue
from tests.broker.groups.house import GROUP, TOPIC, House, stand_still


def test_a_member_locks_its_queues_and_renews_the_locks(house: House) -> None:
    first = house.member("one")
    assert first.lock(0, 1, 2, 3) == {0, 1, 2, 3}
    assert first.lock(0, 1, 2, 3) == {0, 1, 2, 3}
    assert first.may_pull(0)


def test_a_lock_makes_no_offset_for_a_new_group(house: House) -> None:
    house.fill(40)
    first = house.member("one")
    first.lock(0)
    assert house.committed(0) is None
    assert first.may_pull(0, 4)
    assert house.committed(0) == 4


def test_a_queue_that_another_member_has_locked_is_locked_after_that_one_unlocks_it(house: House) -> None:
    first = house.member("one")
    first.lock(0, 1, 2, 3)
    second = house.member("two")
    assert second.lock(2, 3) == set()
    assert first.lock(0, 1, 2, 3) == {0, 1, 2, 3}  # it has to end what it is at
    first.members()
    first.commit(3, 0)
    house.look()
    assert second.lock(2, 3) == set()
    first.unlock(2, 3)
    assert second.lock(2, 3) == {2, 3}


def test_a_member_that_waits_for_a_lock_is_told_when_it_is_free(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    first = house.member("one")
    first.lock(0, 1, 2, 3)
    second = house.member("two")
    second.lock(3)
    heard = second.notices
    first.unlock(3)
    house.until(lambda: second.notices > heard, "the waiting member is told")


def test_a_lock_that_is_not_renewed_runs_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_of, "LOCK_S", 0.1)
    monkeypatch.setattr(lease_of, "QUIET_S", 0.1)
    first = house.member("one")
    first.lock(3)
    second = house.member("two")
    house.until(lambda: second.lock(3) == {3}, "the lock runs out")


@pytest.mark.guarantee("G47")
def test_a_lock_does_not_run_out_while_the_server_stands_still(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a member with locks, and another one that is to have half of them
    first = house.member("one")
    first.lock(0, 1, 2, 3)
    second = house.member("two")
    assert second.lock(3) == set()

    # When the server has stood still for longer than a lock lasts, and hears the second one first
    stand_still(2 * lease_of.LOCK_S, monkeypatch)
    house.look()

    # Then the first one, which may have stood still as well, ends what it is at
    assert second.lock(3) == set()
    assert first.lock(0, 1, 2, 3) == {0, 1, 2, 3}
    first.unlock(3)
    assert second.lock(3) == {3}


def test_a_lock_without_a_group_does_not_run_out_while_the_server_stands_still(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = house.client("one"), house.client("two")
    assert first.lock(0) == {0}
    stand_still(2 * lease_of.LOCK_S, monkeypatch)
    assert second.lock(0) == set()
    first.unlock(0)
    assert second.lock(0) == {0}


def test_the_lock_of_a_connection_that_ended_is_kept_for_the_client_to_come_back(house: House) -> None:
    first = house.member("one")
    first.lock(0, 1, 2, 3)
    second = house.member("two")
    first.close()
    assert second.lock(0, 3) == set()
    assert second.members() == ("two",)
    again = house.member("one")
    assert again.lock(0) == {0}
    assert again.may_pull(0)
    assert second.lock(0) == set()


def test_the_lock_of_a_connection_that_ended_runs_out_when_its_client_trusts_it_no_more(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fences_of, "FENCE_S", 0.1)
    first = house.member("one")
    first.lock(0, 1, 2, 3)
    second = house.member("two")
    first.close()
    house.until(lambda: second.lock(0, 1, 2, 3) == {0, 1, 2, 3}, "the locks run out")


def test_another_member_may_unlock_for_one_that_is_gone_and_for_no_other(house: House) -> None:
    first, second = house.member("one"), house.member("two")
    first.lock(0, 1)
    second.unlock(0, client_id="one")
    assert first.lock(0, 1) == {0, 1}
    first.close()
    second.unlock(0, 1, client_id="one")
    assert second.lock(0, 1) == {0, 1}


def test_a_member_that_leaves_in_order_keeps_no_lock(house: House) -> None:
    first, second = house.member("one"), house.member("two")
    first.lock(0)
    first.leave()
    assert second.lock(0) == {0}


def test_a_queue_that_does_not_exist_is_not_locked_for_a_member(house: House) -> None:
    first = house.member("one")
    assert first.lock(0, 99) == {0}
    assert MessageQueue(TOPIC, 99) not in house.store.topics.queues(TOPIC)


def test_a_member_that_does_not_give_a_lock_up_may_not_renew_it_for_ever(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks_of, "PATIENCE_S", 0.0)
    first = house.member("one")
    first.lock(0, 1, 2, 3)
    second = house.member("two")
    second.lock(2, 3)
    assert first.lock(0, 1, 2, 3) == {0, 1}


def test_members_of_this_library_lock_what_they_handle_side_by_side_under_another_name(house: House) -> None:
    first, second = house.member("one"), house.member("two")
    assert first.lock(0, group=f"{GROUP}%handover") == {0}
    assert first.may_pull(0)
    first.close()  # nothing is in order, so nobody waits
    assert second.lock(0, group=f"{GROUP}%handover") == {0}


def test_a_client_may_lock_a_queue_before_it_is_a_member(house: House) -> None:
    beginner, member = house.client("one"), house.member("two")
    assert beginner.lock(0) == {0}
    assert member.lock(0) == set()
    beginner.beat()
    assert beginner.lock(0) == {0}
    beginner.unlock(0)
    assert house.client("three").lock(0) == {0}
