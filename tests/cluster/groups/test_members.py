"""Members on a cluster: what brokers are told of them, where groups begin, and what members answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmqclient import sql
from rmqclient.backend.group_protocols import Terms
from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.groups import members as members_module
from rmqclient.cluster.groups.beginning import begin_group
from rmqclient.cluster.groups.members import ClusterMembers, pause_s
from rmqclient.cluster.groups.membership import ClusterMembership
from rmqclient.errors import ClientIdInUse, FilterError
from rmqclient.filters import MessageFilter
from rmqclient.remoting.bodies import (
    ConsumerConnection,
    ConsumerStatus,
    GroupList,
    Heartbeat,
    MessageModel,
    RunningInfo,
    Subscription,
)
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request, request_fields, response
from rmqclient.store import MessageQueue
from tests.cluster.groups.scripted_queues import (
    GROUP,
    QUEUE,
    TOPIC,
    eventually,
    granted,
    joined,
    scripted_queues,
    taken,
)
from tests.cluster.groups.test_journal import KILLED
from tests.support.cluster.scripted_cluster import ScriptedCluster

RETRY = f"%RETRY%{GROUP}"


def last_heartbeat(cluster: ScriptedCluster) -> Heartbeat:
    return Heartbeat.decode(cluster.asked(RequestCode.HEART_BEAT)[-1].body)


@pytest.mark.parametrize(("took_s", "pause"), [(0.0, 0.1), (0.005, 0.1), (0.02, 0.4), (3.0, 1.0)])
def test_brokers_that_answer_slowly_are_asked_less_often_and_at_last_once_a_second(took_s: float, pause: float) -> None:
    assert pause_s(took_s) == pause


def test_a_heartbeat_tells_what_a_group_wants() -> None:
    wanted = MessageFilter("b || a")
    with scripted_queues() as (cluster, _queues), joined(cluster, wanted=wanted):
        (consumer,) = last_heartbeat(cluster).consumers
        found = {each.topic: each for each in consumer.subscriptions}
        assert (consumer.group, consumer.message_model) == (GROUP, MessageModel.CLUSTERING)
        assert found.keys() == {TOPIC, RETRY}
        assert (found[TOPIC].expression, found[TOPIC].tags, found[TOPIC].codes) == ("a || b", ("a", "b"), (97, 98))


def test_a_filter_by_properties_is_checked_by_the_broker_and_has_the_tags_in_it() -> None:
    wanted = MessageFilter("it's", sql("n > 5"))
    with scripted_queues() as (cluster, _queues), joined(cluster, wanted=wanted):
        assert cluster.asked(RequestCode.CHECK_CLIENT_CONFIG)
        (consumer,) = last_heartbeat(cluster).consumers
        found = {each.topic: (each.expression_type, each.expression) for each in consumer.subscriptions}
        assert found[TOPIC] == ("SQL92", "(n > 5) AND TAGS IN ('it''s')")


def test_a_broker_that_does_not_filter_by_properties_refuses_the_member() -> None:
    def no(asked: Frame) -> Frame:
        return response(asked, ResponseCode.SYSTEM_ERROR, remark="The broker does not support SQL92")

    wanted = MessageFilter("*", sql("n > 5"))
    with (
        scripted_queues({RequestCode.CHECK_CLIENT_CONFIG: no}) as (cluster, _queues),
        pytest.raises(FilterError, match="enablePropertyFilter=true"),
        joined(cluster, wanted=wanted),
    ):
        pass


def test_two_groups_of_one_client_may_want_different_messages(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(members_module, "LOOK_EVERY_S", 0.01)

    def known(asked: Frame) -> Frame:
        group = request_fields(asked)["consumerGroup"]
        # A group that has sent no heartbeat yet is not known
        heard = [Heartbeat.decode(each.body) for each in cluster.asked(RequestCode.HEART_BEAT)[-1:]]
        consumers = [each for beat in heard for each in beat.consumers if each.group == group]
        found = {each.topic: each for consumer in consumers for each in consumer.subscriptions}
        return response(asked, body=ConsumerConnection(subscriptions=found).encode())

    # Given two groups of one client, one of which wants other messages of the topic
    with scripted_queues({RequestCode.GET_CONSUMER_CONNECTION_LIST: known}) as (cluster, _queues):
        members = ClusterMembers(ClusterURL.parse(f"rocketmq://{cluster.address}"))
        members.join(GROUP, TOPIC, "me@host", Terms("a", MessageFilter("a")))
        members.join("shipping", TOPIC, "me@host", Terms("b", MessageFilter("b")))
        # When the keeper has compared them several times, then it warns of neither
        cluster.wait_for(RequestCode.GET_CONSUMER_CONNECTION_LIST, 12)
        assert "another member wants" not in caplog.text
        # And a broker that asks about a group is told of its own subscriptions
        cluster.push(
            request(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup=GROUP, clientId="me@host", jstackEnable=False)
        )
        (answer,) = cluster.wait_for_answers(1)
        found = {each.topic: each.expression for each in RunningInfo.decode(answer.body).subscriptions}
        assert found == {TOPIC: "a", RETRY: "*"}
        members.close()


def test_a_member_that_wants_other_messages_than_its_group_is_told_of_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(members_module, "LOOK_EVERY_S", 0.01)
    other = ConsumerConnection(subscriptions={TOPIC: Subscription(TOPIC, "b")})
    script = {RequestCode.GET_CONSUMER_CONNECTION_LIST: lambda asked: response(asked, body=other.encode())}
    with scripted_queues(script) as (cluster, _queues), joined(cluster, wanted=MessageFilter("a")):
        eventually(lambda: "another member wants ('TAG', 'b')" in caplog.text, "the warning")


def test_a_member_that_leaves_is_no_member() -> None:
    with scripted_queues() as (cluster, _queues):
        with joined(cluster) as member:
            granted(member).release()
            member.leave()
            (left,) = cluster.asked(RequestCode.UNREGISTER_CLIENT)
            assert request_fields(left) == {"clientID": "me@host", "consumerGroup": GROUP}
        assert not cluster.state.members[GROUP]


def test_a_new_group_begins_once_in_all_queues() -> None:
    begun: list[str] = []

    def groups(asked: Frame) -> Frame:
        return response(asked, body=GroupList(tuple(begun)).encode())

    with scripted_queues({RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: groups}) as (cluster, _queues):
        client = ClusterClient(ClusterURL.parse(f"rocketmq://{cluster.address}"))
        offsets = {MessageQueue(TOPIC, number, "broker-a"): 10 + number for number in range(4)}
        assert begin_group(client, GROUP, offsets)
        assert cluster.state.offsets == {(GROUP, TOPIC, "broker-a", number): 10 + number for number in range(4)}
        assert not cluster.state.locks
        begun.append(GROUP)
        assert not begin_group(client, GROUP, dict.fromkeys(offsets, 0))
        assert cluster.state.offsets[GROUP, TOPIC, "broker-a", 0] == 10
        client.close()


def member_of_broadcast(cluster: ScriptedCluster, name: str) -> tuple[ClusterMembers, ClusterMembership]:
    members = ClusterMembers(ClusterURL.parse(f"rocketmq://{cluster.address}"))
    return members, members.join(f"{GROUP}|{name}", TOPIC, name, Terms("broadcast", MessageFilter()))


def test_a_broadcast_member_has_every_queue_and_goes_on_from_its_file() -> None:
    with scripted_queues() as (cluster, queues):
        members, member = member_of_broadcast(cluster, "cache-1")
        assert [seat.client_id for seat in member.counted()] == ["cache-1"]
        assert last_heartbeat(cluster).consumers[0].message_model is MessageModel.BROADCASTING
        grant = granted(member)
        queues.put(b"a", b"b")
        for message in taken(member, grant, 2):
            grant.acknowledge(message)
        grant.release()
        member.leave()
        members.close()
        assert not cluster.asked(RequestCode.UPDATE_CONSUMER_OFFSET)
        assert not cluster.asked(RequestCode.LOCK_BATCH_MQ)
        members, member = member_of_broadcast(cluster, "cache-1")
        assert granted(member).next_offset == 2
        members.close()


def test_two_processes_of_a_host_cannot_be_one_broadcast_member() -> None:
    with scripted_queues() as (cluster, _queues):
        members, _member = member_of_broadcast(cluster, "cache-1")
        with pytest.raises(ClientIdInUse, match="cache-1"):
            member_of_broadcast(cluster, "cache-1")
        members.close()


def test_a_broadcast_member_begins_where_it_is_told() -> None:
    with scripted_queues() as (cluster, _queues):
        client = ClusterClient(ClusterURL.parse(f"rocketmq://{cluster.address}"))
        assert begin_group(client, f"{GROUP}|cache-1", {QUEUE: 5})
        assert not begin_group(client, f"{GROUP}|cache-1", {QUEUE: 6})
        client.close()
        members, member = member_of_broadcast(cluster, "cache-1")
        assert granted(member).next_offset == 5
        members.close()


def test_a_member_tells_brokers_what_it_does() -> None:
    with scripted_queues() as (cluster, queues), joined(cluster) as member:
        grant = granted(member)
        queues.put(b"a", b"b")
        first, _ = taken(member, grant, 2)
        grant.acknowledge(first)
        cluster.push(
            request(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup=GROUP, clientId="me@host", jstackEnable=False)
        )
        cluster.push(request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, topic=TOPIC, group=GROUP))
        bodies = sorted((answer.body for answer in cluster.wait_for_answers(2)), key=len)
        info = RunningInfo.decode(bodies[1])
        assert info.queues[QUEUE].commit_offset == 1
        assert info.queues[QUEUE].cached_count == 1
        assert {each.topic for each in info.subscriptions} == {TOPIC, RETRY}
        assert ConsumerStatus.decode(bodies[0]).offsets == {QUEUE: 1}


def test_a_member_refuses_a_message_that_does_not_come_out_of_its_queue() -> None:
    with scripted_queues() as (cluster, _queues), joined(cluster):
        cluster.push(request(RequestCode.CONSUME_MESSAGE_DIRECTLY, consumerGroup=GROUP, clientId="me@host"))
        (answer,) = cluster.wait_for_answers(1)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "send the message again" in answer.remark


def test_a_worker_that_was_killed_on_this_host_gives_its_ordered_queues_at_once(state_directory: Path) -> None:
    directory = state_directory / "running"
    command = [sys.executable, "-c", KILLED, str(directory), "4", "4", "1"]
    with scripted_queues() as (cluster, _queues), joined(cluster, ordered=True) as member:
        cluster.state.locks[GROUP, TOPIC, "broker-a", 0] = "killed@host"
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert member.grant(QUEUE) is None
            process.kill()
        eventually(lambda: member.grant(QUEUE), "the queue")
        assert cluster.state.locks[GROUP, TOPIC, "broker-a", 0] == "me@host"
