"""Locks that are renewed: while a master is away and its slave lives, after failures, and beside silent brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rmqclient import sql
from rmqclient.backend.group_protocols import Terms
from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.groups import locks as locks_module
from rmqclient.cluster.groups import member_locks as member_locks_module
from rmqclient.cluster.groups import members as members_module
from rmqclient.cluster.groups import membership as memberships
from rmqclient.cluster.groups.beginning import begin_group
from rmqclient.cluster.groups.grant import ClusterGrant
from rmqclient.cluster.groups.members import ClusterMembers
from rmqclient.cluster.groups.membership import ClusterMembership
from rmqclient.cluster.groups.running_info import queues_of
from rmqclient.errors import BrokerUnreachable
from rmqclient.filters import MessageFilter
from rmqclient.remoting.bodies import ConsumerIds, GroupList, RouteBroker, RouteQueue, RunningInfo, TopicRoute
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import response
from rmqclient.store import MessageQueue, boottime
from tests.cluster.groups.scripted_queues import (
    GROUP,
    TOPIC,
    ScriptedQueues,
    eventually,
    granted,
    joined,
    locks_of,
    scripted_queues,
    taken,
)
from tests.support.cluster.scripted_cluster import ScriptedCluster

LIST = RequestCode.GET_CONSUMER_LIST_BY_GROUP
LOCK = RequestCode.LOCK_BATCH_MQ
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET
A, B = MessageQueue(TOPIC, 0, "broker-a"), MessageQueue(TOPIC, 0, "broker-b")


class Clock:
    """The clock of leases, which the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._later_ns = 0
        for module in (locks_module, member_locks_module, memberships):
            monkeypatch.setattr(module, "boottime", lambda: boottime() + self._later_ns)

    def move(self, seconds: float) -> None:
        self._later_ns += round(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Pair:
    """Two brokers with a queue each; the second one has a slave, and a master that goes and comes back."""

    def __init__(self, cluster: ScriptedCluster, queues: ScriptedQueues) -> None:
        self.cluster = cluster
        self.queues = queues
        self._addresses = {0: cluster.brokers["broker-b"], 1: cluster.brokers["slave"]}
        cluster.script[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self._route

    def lose_master(self) -> None:
        """Let the master of the second broker end, and the name server know."""
        self.cluster.stop("broker-b")
        del self._addresses[0]

    def bring_back_master(self) -> None:
        """Let it listen again, and the name server know."""
        self.cluster.start("broker-b")
        self._addresses[0] = self.cluster.brokers["broker-b"]

    def _route(self, asked: Frame) -> Frame:
        first = RouteBroker("broker-a", "C", {0: self.cluster.brokers["broker-a"]})
        brokers = (first, RouteBroker("broker-b", "C", dict(self._addresses)))
        queues = tuple(RouteQueue(broker.name, 1, 1) for broker in brokers)
        return response(asked, body=TopicRoute(brokers, queues).encode())


@contextmanager
def pair_of_brokers() -> Iterator[Pair]:
    with scripted_queues(brokers=("broker-a", "broker-b", "slave")) as (cluster, queues):
        yield Pair(cluster, queues)


def look_at_routes(client: ClusterClient) -> None:
    """Ask for the route, as each step of a consumer does when a connection was lost."""
    client.routes.of(TOPIC, fresh=True)


def renew(pair: Pair, member: ClusterMembership) -> None:
    """Let the keeper renew, and return when the first broker has answered."""
    before = len(pair.cluster.asked(LOCK, "broker-a"))
    locks_of(member).renew()
    pair.cluster.wait_for(LOCK, before + 1, broker="broker-a")


def both(member: ClusterMembership) -> tuple[ClusterGrant, ClusterGrant]:
    """Take the queue of the broker that will lose its master, and then the other one."""
    second = granted(member, queue=B)
    return granted(member, queue=A), second


def test_a_member_reads_on_at_the_slave_while_a_master_is_away(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    with pair_of_brokers() as pair, joined(pair.cluster) as member:
        # Given a member with a queue of each broker
        first, second = both(member)
        # When the master of one is away for longer than a lock is trusted
        pair.lose_master()
        look_at_routes(member._client)
        clock.move(25)
        renew(pair, member)
        clock.move(20)
        # Then both queues go on, one of them at the slave
        eventually(lambda: not first.lease_is_over, "the lock of the other broker")
        assert not second.lease_is_over
        pair.queues.put(b"a")
        for grant in (first, second):
            (message,) = taken(member, grant, 1)
            assert grant.begin(message)
            grant.acknowledge(message)
        # And what is finished is committed at the other broker, with one line for the one that has no master
        for _ in range(3):
            member.commit_soon()
        pair.cluster.wait_for(COMMIT, broker="broker-a")
        assert caplog.text.count("is not committed yet") == 1
        # And when the master is back, it gives the lock again and learns the offset
        pair.bring_back_master()
        look_at_routes(member._client)
        renew(pair, member)

        def is_told() -> bool:
            member.commit_soon()
            return bool(pair.cluster.asked(COMMIT, "broker-b"))

        eventually(is_told, "the offset at the broker that was away")
        assert second.valid


def test_an_ordered_queue_stops_while_its_master_is_away_and_the_other_one_goes_on(clock: Clock) -> None:
    with pair_of_brokers() as pair, joined(pair.cluster, ordered=True) as member:
        first, second = both(member)
        pair.lose_master()
        look_at_routes(member._client)
        clock.move(25)
        renew(pair, member)
        clock.move(20)
        eventually(lambda: not first.lease_is_over, "the lock of the other broker")
        assert second.lease_is_over
        assert second.valid


def test_members_are_asked_for_while_a_master_is_away() -> None:
    with pair_of_brokers() as pair, joined(pair.cluster) as member:
        assert len(member.counted()) == 1
        pair.lose_master()
        look_at_routes(member._client)
        pair.cluster.state.members[GROUP].add("late@elsewhere")
        assert member._members is not None
        assert member._members.ask()
        assert len(member.counted()) == 2


def test_a_member_is_asked_for_its_queues_by_way_of_a_slave() -> None:
    with pair_of_brokers() as pair, joined(pair.cluster) as member:
        info = RunningInfo({}, (), {})
        pair.cluster.script[RequestCode.GET_CONSUMER_RUNNING_INFO] = lambda asked: response(asked, body=info.encode())
        pair.lose_master()
        route = TopicRoute(
            (RouteBroker("broker-b", "C", {1: pair.cluster.brokers["slave"]}),), (RouteQueue("broker-b", 1, 1),)
        )
        pair.cluster.script[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda asked: response(asked, body=route.encode())
        look_at_routes(member._client)
        assert queues_of(member._client, GROUP, TOPIC, "other@host") == []
        assert pair.cluster.asked(RequestCode.GET_CONSUMER_RUNNING_INFO, "slave")


def test_a_filter_by_properties_is_checked_by_a_slave_while_its_master_is_away() -> None:
    with pair_of_brokers() as pair:
        pair.lose_master()
        with joined(pair.cluster, wanted=MessageFilter("*", sql("n > 5"))):
            assert pair.cluster.asked(RequestCode.CHECK_CLIENT_CONFIG, "slave")


def test_a_queue_that_cannot_be_taken_is_logged_once_while_its_master_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memberships, "_UNREACHABLE_PAUSE_S", 0.0)
    with pair_of_brokers() as pair:
        pair.lose_master()
        with joined(pair.cluster) as member:
            for _ in range(3):
                assert member.grant(B) is None
            assert caplog.text.count("cannot be taken yet") == 1
            pair.bring_back_master()
            look_at_routes(member._client)
            eventually(lambda: member.grant(B), "the queue")
            granted(member, queue=A)


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_worker_starts_while_a_master_is_away_unless_its_group_is_new(has_begun: bool) -> None:
    groups = GroupList((GROUP,) if has_begun else ())
    with pair_of_brokers() as pair:
        pair.cluster.script[RequestCode.QUERY_TOPIC_CONSUME_BY_WHO] = lambda asked: response(
            asked, body=groups.encode()
        )
        pair.lose_master()
        client = ClusterClient(ClusterURL.parse(f"rocketmq://{pair.cluster.address}"))
        look_at_routes(client)
        if has_begun:
            assert not begin_group(client, GROUP, {B: 5, A: 5})
        else:
            with pytest.raises(BrokerUnreachable, match=r"is new.*start='earliest'"):
                begin_group(client, GROUP, {B: 5, A: 5})
        assert not pair.cluster.asked(COMMIT)
        client.close()


def test_a_renewal_that_failed_is_tried_again_soon_and_logged_once(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(member_locks_module, "RENEW_AGAIN_S", 0.01, raising=False)
    with scripted_queues() as (cluster, _queues), joined(cluster) as member:
        grant = granted(member)
        # Given a broker that does not renew for a while
        cluster.script[LOCK] = lambda asked: response(asked, ResponseCode.SYSTEM_ERROR, remark="not now")
        clock.move(25)
        # When the keeper renews once
        locks_of(member).renew()
        cluster.wait_for(LOCK, 4)
        del cluster.script[LOCK]
        # Then it goes on by itself until the lock is renewed
        cluster.wait_for(LOCK, len(cluster.asked(LOCK)) + 1)
        clock.move(20)
        eventually(lambda: not grant.lease_is_over, "the renewal")
        assert caplog.text.count("not now") == 1


def test_a_queue_without_order_goes_on_though_its_client_may_not_lock(clock: Clock) -> None:
    with scripted_queues() as (cluster, _queues), joined(cluster) as member:
        cluster.script[LOCK] = lambda asked: response(asked, ResponseCode.NO_PERMISSION, remark="no rights")
        grant = granted(member)
        clock.move(25)
        locks_of(member).renew()
        clock.move(20)
        eventually(lambda: not grant.lease_is_over, "the renewal")


def test_a_membership_that_fails_holds_up_no_other_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(members_module, "RENEW_EVERY_S", 0.01)

    def renew() -> None:
        raise RuntimeError("a fault of one membership")

    with scripted_queues() as (cluster, _queues):
        members = ClusterMembers(ClusterURL.parse(f"rocketmq://{cluster.address}"))
        broken = members.join(GROUP, "broken", "me@host", Terms("*", MessageFilter()))
        monkeypatch.setattr(locks_of(broken), "renew", renew)
        granted(members.join(GROUP, TOPIC, "me@host", Terms("*", MessageFilter())))
        cluster.wait_for(LOCK, len(cluster.asked(LOCK)) + 3)
        members.close()
    assert "a fault of one membership" in caplog.text


def test_locks_are_renewed_while_a_broker_does_not_say_who_is_in_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members_module, "RENEW_EVERY_S", 0.01)
    monkeypatch.setattr(members_module, "LOOK_EVERY_S", 0.01)
    with scripted_queues() as (cluster, _queues), joined(cluster) as member:
        granted(member)
        held = list[Frame]()
        cluster.script[LIST] = held.append
        eventually(lambda: held, "the question")
        cluster.wait_for(LOCK, len(cluster.asked(LOCK)) + 5)
        (question,) = held
        del cluster.script[LIST]
        cluster.answer_to(question, response(question, body=ConsumerIds((member.client_id,)).encode()))
