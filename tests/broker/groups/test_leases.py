"""Leases: a queue feeds one remote member at a time, and moves when its member has given it up."""

from __future__ import annotations

import logging

import pytest

from rmqclient.broker.groups import lease as lease_of
from rmqclient.broker.groups import transfers as transfers_of
from rmqclient.broker.limits.counters import Refusal
from rmqclient.remoting.bodies import ResetOffset, Subscription
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.store import MessageQueue
from tests.broker.groups.house import BROKER, GROUP, TOPIC, Client, House, stand_still

ALL = {0, 1, 2, 3}


def fed(client: Client, *queue_ids: int) -> set[int]:
    """Return the queues of which a client is fed now."""
    return {queue_id for queue_id in queue_ids or ALL if client.may_pull(queue_id)}


def test_a_member_alone_is_fed_from_every_queue(house: House) -> None:
    assert fed(house.member("one")) == ALL


def test_a_member_that_was_allocated_half_of_the_queues_gets_them_when_the_other_has_committed(house: House) -> None:
    house.fill(8)
    first = house.member("one")
    assert fed(first) == ALL
    second = house.member("two")
    assert fed(second) == set()
    assert fed(first, 0, 1) == {0, 1}  # its share
    first.members()
    for queue_id in (2, 3):
        assert first.commit(queue_id, 1) == 0
    house.look()
    assert fed(second, 2, 3) == {2, 3}
    assert fed(first, 2, 3) == set()


def test_a_commit_by_the_clock_is_no_sign_that_a_queue_was_given_up(house: House) -> None:
    house.fill(8)
    first = house.member("one")
    fed(first)
    second = house.member("two")
    assert not second.may_pull(3)
    first.commit(3, 1)
    house.look()
    assert not second.may_pull(3)


def test_a_queue_that_is_not_pulled_any_more_is_given_up(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_of, "QUIET_S", 0.05)
    first = house.member("one")
    fed(first)
    second = house.member("two")
    house.until(lambda: second.may_pull(3), "the queue moves")
    assert not first.may_pull(3)


@pytest.mark.guarantee("G47")
def test_a_queue_is_not_given_up_by_a_pull_that_the_server_could_not_read(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a member that is asked for a queue
    first = house.member("one")
    fed(first)
    second = house.member("two")
    assert not second.may_pull(3)

    # When the server has stood still for longer than the member may be quiet, and hears the other one first
    stand_still(lease_of.PATIENCE_S + 1, monkeypatch)
    house.look()

    # Then the queue feeds nobody else, until it is given up as always
    assert not second.may_pull(3)
    first.members()
    first.commit(3, 0)
    house.look()
    assert second.may_pull(3)


def test_a_member_that_pulls_on_loses_a_queue_that_is_not_its_own(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_of, "PATIENCE_S", 0.2)
    first = house.member("one")
    fed(first)
    second = house.member("two")

    def moved() -> bool:
        first.may_pull(3)
        return second.may_pull(3)

    house.until(moved, "the queue moves")
    assert not first.may_pull(3)


def test_the_member_that_has_a_queue_by_the_allocation_keeps_it_from_one_with_another_strategy(house: House) -> None:
    first, second = house.member("one"), house.member("two")
    assert fed(first, 0) == {0}
    assert not second.may_pull(0)
    house.look()
    assert (first.may_pull(0), second.may_pull(0), first.notices) == (True, False, 2)


def test_a_free_queue_that_nobody_else_wants_goes_to_a_member_with_another_strategy(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers_of, "_RESERVED_S", 0.1)
    house.member("one")
    second = house.member("two")
    assert not second.may_pull(0)
    house.until(lambda: second.may_pull(0), "the queue goes to who asks")


def test_a_connection_that_ends_frees_its_queues_at_once(house: House) -> None:
    first = house.member("one")
    fed(first)
    second = house.member("two")
    fed(second)
    heard: list[tuple[str, MessageQueue]] = []
    house.groups.transfers.when_free(lambda *freed: heard.append(freed))
    first.close()
    assert {(group, queue.queue_id) for group, queue in heard} == {(GROUP, queue_id) for queue_id in ALL}
    assert fed(second) == ALL


def test_a_pull_that_is_held_and_looked_at_again_is_one_pull(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_of, "QUIET_S", 0.05)
    first = house.member("one")
    fed(first)
    held = first.pull(3)
    queue = MessageQueue(TOPIC, 3)
    second = house.member("two")

    def moved() -> bool:
        house.groups.leases.read_from(held, GROUP, queue)
        return second.may_pull(3)

    house.until(moved, "the queue moves, although the old pull is still held")


def test_a_broadcast_member_and_a_stranger_need_no_lease(house: House) -> None:
    broadcast = house.client("one")
    broadcast.beat_as_broadcast()
    assert fed(broadcast) == ALL
    assert fed(house.client("mqadmin")) == ALL
    assert house.committed(0) is None


def test_a_pull_consumer_gets_nothing_of_a_queue_that_a_push_consumer_has(house: House) -> None:
    puller = house.client("a-puller")
    puller.beat_as_puller()
    assert fed(puller) == ALL
    pusher = house.member("z-pusher")
    house.until(lambda: pusher.may_pull(3), "the pusher has its queue")
    assert fed(puller) == {0, 1, 2}
    assert puller.members() == ("a-puller", "z-pusher")


def test_a_commit_moves_the_group_and_one_of_who_lost_the_queue_is_refused(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.fill(40)
    first, second = house.member("one"), house.member("two")
    assert first.may_pull(0)
    assert first.commit(0, 7) == 0
    with caplog.at_level(logging.WARNING):
        assert second.commit(0, 9) == ResponseCode.SYSTEM_ERROR
        assert second.commit(0, 10) == ResponseCode.SYSTEM_ERROR
    assert house.committed(0) == 7
    assert len([line for line in caplog.messages if "a commit is refused" in line]) == 1
    assert first.commit(0, 5) == 0  # its consumer has gone back
    assert first.offset(0) == 5


@pytest.mark.guarantee("G49")
def test_bad_commits_of_a_thousand_groups_are_counted_and_are_one_line_of_the_log(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    client = house.client("one")
    with caplog.at_level(logging.WARNING):
        for number in range(1_000):
            answer = client.ask(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                consumerGroup=f"group-{number}",
                topic=TOPIC,
                queueId=0,
                commitOffset=99,
            )
            assert answer.code == ResponseCode.SYSTEM_ERROR
    lines = [line for line in caplog.messages if "a commit is refused" in line]
    assert 1 <= len(lines) < 100
    assert house.broker.counters.count(Refusal.COMMIT) == 1_000


@pytest.mark.parametrize("offset", [-1, 11])
def test_an_offset_that_a_queue_does_not_have_is_refused(house: House, offset: int) -> None:
    house.fill(40)
    first = house.member("one")
    first.may_pull(0)
    assert first.commit(0, offset) == ResponseCode.SYSTEM_ERROR
    assert house.committed(0) == 0


def test_an_administrator_commits_whoever_has_the_queue(house: House) -> None:
    house.fill(40)
    first = house.member("one")
    first.may_pull(0)
    assert house.client("mqadmin").commit(0, 3) == 0
    assert (house.committed(0), first.may_pull(0)) == (3, True)
    assert house.client("mqadmin").commit(1, 4) == 0
    assert house.committed(1) == 4


def test_what_was_committed_after_a_member_asked_is_not_fed_to_it_again(house: House) -> None:
    house.fill(40)
    first, second = house.member("one"), house.member("two")
    first.may_pull(3)
    assert second.offset(3) == 0
    first.commit(3, 6)
    first.leave()
    pull = second.pull(3, 0)
    queue = MessageQueue(TOPIC, 3)
    assert house.groups.leases.read_from(pull, GROUP, queue) == 6


def test_a_member_is_sent_to_the_place_that_a_seek_moved_the_group_to(house: House) -> None:
    house.fill(40)
    first = house.member("one")
    first.may_pull(0)
    first.commit(0, 7)
    slot = house.store.groups.find(GROUP, house.store.topics.slot(MessageQueue(TOPIC, 0)))
    assert slot is not None
    with slot.locked(1000):
        slot.seek(2)
    assert first.commit(0, 8) == ResponseCode.SYSTEM_ERROR
    reset = [frame for frame in first.sent if frame.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET]
    assert ResetOffset.decode(reset[0].body).offsets == {MessageQueue(TOPIC, 0, BROKER): 2}
    assert not first.may_pull(0, 8)
    assert first.may_pull(0, 2)
    assert house.committed(0) == 2


def test_a_paused_group_is_not_fed(house: House) -> None:
    first = house.member("one")
    assert first.may_pull(0)
    slot = house.store.groups.find(GROUP, house.store.topics.slot(MessageQueue(TOPIC, 0)))
    assert slot is not None
    slot.store("paused", 1)
    assert not first.may_pull(0)
    slot.store("paused", 0)
    assert first.may_pull(0)


def test_among_remote_members_the_newest_subscription_counts_and_all_are_fed(house: House) -> None:
    first = house.member("one", Subscription(TOPIC, "a"))
    assert first.may_pull(0)
    second = house.member("two", Subscription(TOPIC, "b"))
    wanted = house.groups.clients.subscription(GROUP, TOPIC)
    assert wanted is not None
    assert wanted.tags == ("b",)
    assert (first.may_pull(0), second.may_pull(3)) == (True, True)
