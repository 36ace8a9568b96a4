"""Grants on a cluster: what is pulled, what is committed and when, and what ends a grant."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from rmqclient.cluster.client.brokers import Brokers
from rmqclient.cluster.groups import locks as locks_module
from rmqclient.cluster.groups import member_locks as member_locks_module
from rmqclient.cluster.groups import membership as memberships
from rmqclient.cluster.groups.offsets import BrokerOffsets
from rmqclient.errors import BrokerUnreachable
from rmqclient.filters import MessageFilter
from rmqclient.message import ReceivedMessage
from rmqclient.remoting.bodies import ConsumerIds, LockedQueues, ResetOffset
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request, request_fields, response
from rmqclient.store import MessageQueue, boottime
from tests.cluster.groups.scripted_queues import (
    GROUP,
    QUEUE,
    SPAN,
    TOPIC,
    eventually,
    granted,
    joined,
    locks_of,
    pulled,
    scripted_queues,
    taken,
)
from tests.support.cluster.scripted_cluster import ScriptedCluster

LIST = RequestCode.GET_CONSUMER_LIST_BY_GROUP


def committed(cluster: ScriptedCluster) -> list[int]:
    """Return the offsets of the queue that were committed, in their order."""
    fields = map(request_fields, cluster.asked(RequestCode.UPDATE_CONSUMER_OFFSET))
    return [each["commitOffset"] for each in fields if (each["topic"], each["queueId"]) == (TOPIC, 0)]


def asked_offsets(cluster: ScriptedCluster) -> list[int]:
    return [request_fields(each)["queueOffset"] for each in cluster.asked(RequestCode.PULL_MESSAGE)]


def test_messages_that_came_are_handed_over_though_their_broker_has_left_the_routes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given routes that lose the broker while its answer is handled
    known, lost = Brokers.read_address, list[str]()

    def read_address(brokers: Brokers, broker_name: str, broker_id: int = 0) -> str:
        if threading.current_thread().name == "rmq-cluster-io" and not lost:
            lost.append(broker_name)
            raise BrokerUnreachable(f"broker {broker_name!r} has neither a master nor slaves at present")
        return known(brokers, broker_name, broker_id)

    monkeypatch.setattr(Brokers, "read_address", read_address)
    with scripted_queues() as (cluster, queues), joined(cluster) as member:
        queues.put(b"first", b"second")
        # When a member pulls
        grant = granted(member)
        # Then it gets what came, and goes on behind it
        assert [message.body for message in taken(member, grant, 2)] == [b"first", b"second"]
        assert lost == ["broker-a"]
        queues.put(b"third")
        assert [message.body for message in taken(member, grant, 1)] == [b"third"]


def test_messages_come_in_order_and_wake_the_thread_that_sleeps() -> None:
    with scripted_queues() as (cluster, queues), joined(cluster) as member:
        grant = granted(member)
        queues.put(*(b"%d" % number for number in range(100)))
        assert [message.body for message in taken(member, grant, 100)] == [b"%d" % number for number in range(100)]
        queues.put(b"later")
        (message,) = taken(member, grant, 1)
        assert (message.body, message.queue, message.queue_offset) == (b"later", QUEUE, 100)


def test_a_lock_is_trusted_from_when_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a broker that locks at once, and says only after 31 s where the group stands
    known, later_ns = BrokerOffsets.read, 0

    def read(offsets: BrokerOffsets, queue: MessageQueue) -> int:
        nonlocal later_ns
        later_ns = 31_000_000_000
        return known(offsets, queue)

    monkeypatch.setattr(BrokerOffsets, "read", read)
    for module in (locks_module, member_locks_module, memberships):
        monkeypatch.setattr(module, "boottime", lambda: boottime() + later_ns)
    with scripted_queues() as (cluster, queues), joined(cluster) as member:
        queues.put(b"first")
        # When a member gets the queue, then it handles nothing before the lock is renewed
        assert granted(member).lease_is_over


def test_what_nobody_takes_is_pulled_to_a_limit() -> None:
    with scripted_queues() as (cluster, queues), joined(cluster) as member:
        queues.put(*(b"x" for _ in range(2_000)))
        grant = granted(member)
        eventually(lambda: grant.messages.ahead >= 256, "as many as may be ahead")
        assert grant.messages.ahead < 256 + 32
        assert not grant.messages.has_room
        assert max(asked_offsets(cluster)) < 256
        assert len(grant.take(100, SPAN)) == 100
        eventually(lambda: grant.messages.ahead >= 256, "what takes the place of those that were taken")


def test_nothing_is_taken_beyond_the_span() -> None:
    with scripted_queues() as (cluster, queues), joined(cluster) as member:
        queues.put(*(b"x" for _ in range(40)))
        grant = granted(member)
        eventually(lambda: grant.messages.ahead == 40, "all messages")
        first, *others = grant.take(10, 10)
        assert len(others) == 9
        assert not grant.take(10, 10)
        assert grant.acknowledge(first)
        assert [message.queue_offset for message in grant.take(10, 10)] == [10]


def test_the_oldest_unfinished_message_holds_the_offset() -> None:
    with scripted_queues() as (cluster, queues), joined(cluster) as member:
        grant = granted(member)
        queues.put(b"a", b"b", b"c")
        first, second, third = taken(member, grant, 3)
        grant.acknowledge(second)
        assert grant.acknowledge_offsets(grant.finish([third]))
        assert grant.committed_offset == 0
        grant.offset.commit()
        assert not committed(cluster)
        grant.acknowledge(first)
        grant.offset.commit_soon()
        cluster.wait_for(RequestCode.UPDATE_CONSUMER_OFFSET)
        assert committed(cluster) == [3]


def test_nothing_is_committed_above_messages_whose_filter_runs() -> None:
    watched = Watched()
    with scripted_queues() as (cluster, queues), joined(cluster, wanted=watched) as member:
        # Given a filter that runs while the broker says that there is nothing more
        def empty_answer_and_commit() -> None:
            pulls = len(asked_offsets(cluster))
            queues.refusals.append(lambda asked: pulled(asked, ResponseCode.PULL_NOT_FOUND, 3))
            queues.put()
            eventually(lambda: len(asked_offsets(cluster)) > pulls, "the pull after the empty answer")
            grant.offset.commit()

        watched.at_first.append(empty_answer_and_commit)
        grant = granted(member)
        queues.put(b"a", b"b", b"c")
        eventually(lambda: 3 in asked_offsets(cluster), "the pull that waits")
        # When the messages are taken
        assert len(grant.take(10, SPAN)) == 3
        # Then nothing says that they are finished
        assert set(committed(cluster)) <= {0}
        assert grant.committed_offset == 0


def test_a_part_of_a_batch_that_was_stored_as_one_does_not_pass_an_older_message() -> None:
    with scripted_queues() as (cluster, queues), joined(cluster) as member:
        grant = granted(member)
        queues.put(b"a", b"b")
        first, second = taken(member, grant, 2)
        grant.messages.add([second], 2, 2)
        taken(member, grant, 1)
        grant.acknowledge(second)
        assert grant.committed_offset == first.queue_offset
        grant.acknowledge(first)
        assert grant.committed_offset == second.queue_offset
        grant.acknowledge(second)
        assert grant.committed_offset == 2


class Watched(MessageFilter):
    """Lets every message pass; at the first one it does something."""

    def __init__(self) -> None:
        super().__init__()
        self.at_first: list[Callable[[], None]] = []

    def matches(self, message: ReceivedMessage) -> bool:
        del message
        while self.at_first:
            self.at_first.pop()()
        return True


def test_tags_are_sent_and_checked_again() -> None:
    wanted = MessageFilter("Aa")
    with scripted_queues() as (cluster, queues), joined(cluster, wanted=wanted) as member:
        grant = granted(member)
        queues.put(b"other", tags="BB")
        queues.put(b"wanted", tags="Aa")
        (message,) = taken(member, grant, 1)
        assert message.body == b"wanted"
        asked = request_fields(cluster.asked(RequestCode.PULL_MESSAGE)[0])
        assert (asked["subscription"], asked["expressionType"]) == ("Aa", "TAG")
        grant.acknowledge(message)
        assert grant.committed_offset == 2


def test_an_offset_is_committed_before_the_lock_is_freed() -> None:
    with scripted_queues() as (cluster, queues), joined(cluster) as member:
        grant = granted(member)
        queues.put(b"a", b"b")
        for message in taken(member, grant, 2):
            grant.acknowledge(message)
        assert grant.release()
        codes = [each.code for each in cluster.requests]
        assert codes.index(RequestCode.UPDATE_CONSUMER_OFFSET) < codes.index(RequestCode.UNLOCK_BATCH_MQ)
        assert set(committed(cluster)) == {2}
        assert not grant.acknowledge(message)


def test_an_offset_is_told_again_to_a_broker_that_may_have_forgotten_it() -> None:
    with scripted_queues() as (cluster, queues), joined(cluster) as member:
        grant = granted(member)
        queues.put(b"a", b"b")
        for message in taken(member, grant, 2):
            grant.acknowledge(message)
        grant.offset.commit()
        grant.offset.commit()
        assert committed(cluster) == [2, 2]
        cluster.hang_up("broker-a")

        def is_told_again() -> bool:
            member.commit_soon()
            return committed(cluster) == [2, 2, 2, 2]

        eventually(is_told_again, "the same offset again")
        grant.offset.commit()
        assert committed(cluster) == [2, 2, 2, 2]


def test_the_first_offset_is_told_twice_since_a_broker_may_lose_it_when_that_of_another_queue_comes() -> None:
    with scripted_queues() as (cluster, queues), joined(cluster) as member:
        grant = granted(member)
        queues.put(b"a", b"b", b"c")
        first, second, third = taken(member, grant, 3)
        grant.acknowledge(first)
        grant.acknowledge(second)

        def are_told(*offsets: int) -> bool:
            member.commit_soon()
            return committed(cluster) == [*offsets]

        eventually(lambda: are_told(2, 2), "the first offset, twice")
        grant.acknowledge(third)
        eventually(lambda: are_told(2, 2, 3), "the next one")
        grant.offset.commit()
        assert committed(cluster) == [2, 2, 3]


def test_the_next_owner_waits_for_the_lock_and_goes_on_where_the_last_one_stopped() -> None:
    with scripted_queues() as (cluster, queues), joined(cluster) as last, joined(cluster, "other@host") as following:
        queues.put(b"a", b"b")
        grant = granted(last)
        first, _ = taken(last, grant, 2)
        assert following.grant(QUEUE) is None
        grant.acknowledge(first)
        grant.release()
        eventually(lambda: (found := following.grant(QUEUE)) and found.next_offset == 1, "it")


def test_a_lock_that_another_member_got_ends_the_grant() -> None:
    with scripted_queues() as (cluster, queues), joined(cluster) as member:
        grant = granted(member)
        queues.put(b"a")
        (message,) = taken(member, grant, 1)
        cluster.script[RequestCode.LOCK_BATCH_MQ] = lambda asked: response(asked, body=LockedQueues().encode())
        locks_of(member).renew()
        eventually(lambda: not grant.valid, "the end of the grant")
        assert not grant.acknowledge(message)
        grant.release()
        assert not committed(cluster)


def test_a_lock_that_was_not_renewed_in_time_stops_an_ordered_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_queues() as (cluster, queues), joined(cluster, ordered=True) as member:
        grant = granted(member)
        queues.put(b"a", b"b")
        first, second = taken(member, grant, 2)
        assert grant.begin(first)
        monkeypatch.setattr(locks_module, "VALID_S", 0.0)
        assert grant.lease_is_over
        assert not grant.begin(second)
        grant.acknowledge(first)
        grant.offset.commit()
        assert not committed(cluster)
        monkeypatch.undo()
        grant.offset.commit()
        assert set(committed(cluster)) == {1}


@pytest.mark.parametrize("ordered", [True, False])
def test_a_broker_that_may_have_forgotten_the_lock_stops_an_ordered_queue_until_it_is_renewed(ordered: bool) -> None:
    with scripted_queues() as (cluster, queues), joined(cluster, ordered=ordered) as member:
        grant = granted(member)
        queues.put(b"a", b"b")
        first, second = taken(member, grant, 2)
        assert grant.begin(first)
        # When the connection to the broker ends, then the next message is not begun
        cluster.hang_up("broker-a")
        if not ordered:
            assert grant.begin(second)
            return
        eventually(lambda: grant.lock and grant.lock.may_be_forgotten, "the doubt")
        assert not grant.begin(second)
        # Until the lock is renewed
        locks_of(member).renew_forgotten()
        eventually(lambda: grant.begin(second), "a lock that is renewed")
        asked = len(cluster.asked(RequestCode.LOCK_BATCH_MQ))
        locks_of(member).renew_forgotten()
        assert len(cluster.asked(RequestCode.LOCK_BATCH_MQ)) == asked


def test_an_ordered_queue_that_another_member_got_from_a_broker_that_came_back_is_lost() -> None:
    with scripted_queues() as (cluster, queues), joined(cluster, ordered=True) as member:
        grant = granted(member)
        queues.put(b"a")
        (message,) = taken(member, grant, 1)
        cluster.script[RequestCode.LOCK_BATCH_MQ] = lambda asked: response(asked, body=LockedQueues().encode())
        cluster.hang_up("broker-a")
        eventually(lambda: grant.lock and grant.lock.may_be_forgotten, "the doubt")
        locks_of(member).renew_forgotten()
        eventually(lambda: not grant.valid, "the end of the grant")
        assert not grant.begin(message)


def test_an_offset_that_was_removed_is_stepped_over() -> None:
    with scripted_queues() as (cluster, queues), joined(cluster) as member:
        queues.refusals.append(lambda asked: pulled(asked, ResponseCode.PULL_OFFSET_MOVED, 7))
        grant = granted(member)
        eventually(lambda: 7 in asked_offsets(cluster), "a pull behind it")
        assert (grant.expired, grant.next_offset, grant.valid) == (7, 7, True)


def test_a_group_that_was_reset_begins_a_grant_anew() -> None:
    with scripted_queues() as (cluster, queues), joined(cluster) as member:
        grant = granted(member)
        queues.put(b"a", b"b", b"c")
        for message in taken(member, grant, 3):
            grant.acknowledge(message)
        grant.offset.commit()
        queues.refusals.append(lambda asked: pulled(asked, ResponseCode.PULL_OFFSET_MOVED, 1))
        queues.put(b"d")
        eventually(lambda: not grant.valid, "the end of the grant")
        following = granted(member)
        assert following.next_offset == 1
        assert committed(cluster) == [3, 3, 1]


def test_a_broker_moves_a_member_that_runs() -> None:
    with scripted_queues() as (cluster, queues), joined(cluster) as member:
        grant = granted(member)
        queues.put(b"a", b"b", b"c")
        taken(member, grant, 3)
        reset = request(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
            ResetOffset({QUEUE: 2, MessageQueue(TOPIC, 3, "broker-a"): 9}).encode(),
            topic=TOPIC,
            group=GROUP,
            timestamp=-1,
            isForce=True,
        )
        reset.flag = 2
        cluster.push(reset)
        eventually(lambda: not grant.valid, "the end of the grant")
        assert granted(member).next_offset == 2


def test_a_broker_that_knows_no_subscription_gets_a_heartbeat() -> None:
    def no(asked: Frame) -> Frame:
        return response(asked, ResponseCode.SUBSCRIPTION_NOT_LATEST, remark="no")

    with scripted_queues() as (cluster, queues), joined(cluster) as member:
        queues.refusals += [no, no]
        before = len(cluster.asked(RequestCode.HEART_BEAT))
        grant = granted(member)
        queues.put(b"a")
        assert taken(member, grant, 1)
        assert len(cluster.asked(RequestCode.HEART_BEAT)) > before


def test_an_ordered_queue_waits_for_a_member_that_has_just_vanished() -> None:
    with scripted_queues() as (cluster, _queues), joined(cluster, ordered=True) as member:
        cluster.state.members[GROUP].add("gone@elsewhere")
        cluster.state.locks[GROUP, TOPIC, "broker-a", 0] = "gone@elsewhere"
        assert len(member.counted()) == 2
        cluster.state.members[GROUP].discard("gone@elsewhere")
        notify(cluster)
        eventually(lambda: len(member.counted()) == 1, "the notice")
        assert member.grant(QUEUE) is None


def test_an_unordered_queue_is_freed_of_a_member_that_has_vanished() -> None:
    with scripted_queues() as (cluster, _queues), joined(cluster) as member, joined(cluster, "gone@elsewhere") as gone:
        granted(gone)
        notify(cluster)
        eventually(lambda: len(member.counted()) == 2, "both members")
        assert member.grant(QUEUE) is None
        cluster.state.members[GROUP].discard("gone@elsewhere")
        cluster.script[RequestCode.HEART_BEAT] = response
        notify(cluster)
        eventually(lambda: len(member.counted()) == 1, "the notice")
        eventually(lambda: member.grant(QUEUE), "the queue")


def test_the_notices_of_many_brokers_are_one_question() -> None:
    with scripted_queues() as (cluster, _queues), joined(cluster) as member:
        # Given a member that waits for an answer about who is in its group
        alone = len(member.counted())
        before = len(cluster.asked(LIST))
        cluster.script[LIST] = lambda _: None
        notify(cluster)
        eventually(lambda: len(cluster.asked(LIST)) > before, "the first question")
        # When a hundred notices come meanwhile
        for _ in range(100):
            notify(cluster)
        del cluster.script[LIST]
        cluster.state.members[GROUP].add("late@elsewhere")
        first = cluster.asked(LIST)[-1]
        cluster.answer_to(first, response(first, body=ConsumerIds((member.client_id,)).encode()))
        # Then it asks once more, and learns what has changed last
        eventually(lambda: len(member.counted()) == alone + 1, "the late member")
        assert len(cluster.asked(LIST)) <= before + 3


def notify(cluster: ScriptedCluster) -> None:
    """Tell the members that their group has changed."""
    notice = request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup=GROUP)
    notice.flag = 2
    cluster.push(notice)
