"""Groups as an onlooker sees them, and moving them."""

from __future__ import annotations

import pytest

from rmqclient.admin import Admin
from rmqclient.backend import Backend
from rmqclient.errors import NotOnCluster, QueueOwned
from rmqclient.message import MessageQueue
from rmqclient.remoting.bodies import fastjson
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields, response
from rmqclient.store.errors import UnknownGroup
from tests.cluster.reading.conftest import answering, runtime
from tests.support.cluster.keeping_cluster import KeepingCluster

A, B = MessageQueue("orders", 0, "broker-a"), MessageQueue("orders", 0, "broker-b")
RETRIES = MessageQueue("%RETRY%billing", 0, "broker-a")
CLIENT = "127.0.0.1@4242#7"


def offsets(kept: KeepingCluster, *, online: bool) -> None:
    """Let brokers tell all offsets, and who is in the group ``billing``."""

    def all_offsets(asked: Frame) -> Frame:
        cluster, code = kept.cluster, RequestCode.GET_ALL_CONSUMER_OFFSET
        broker = next(name for name in cluster.brokers if asked in cluster.asked(code, name))
        table: dict[str, dict[str, int]] = {"SYSTEM@CID_RMQ_SYS_TRANS": {"0": 3}, "gone@billing": {"0": 1}}
        for (group, topic, at, queue_id), offset in kept.cluster.state.offsets.items():
            if at == broker:
                table.setdefault(f"{topic}@{group}", {})[str(queue_id)] = offset
        return response(asked, body=fastjson.write({"offsetTable": table}))

    def members(asked: Frame) -> Frame:
        if not online or request_fields(asked)["consumerGroup"] != "billing":
            return response(asked, ResponseCode.CONSUMER_NOT_ONLINE, remark="not online")
        table = {"orders": {"subString": "paid", "topic": "orders"}, "%RETRY%billing": {"subString": "*"}}
        return response(
            asked, body=fastjson.write({"connectionSet": [{"clientId": CLIENT}], "subscriptionTable": table})
        )

    kept.cluster.script |= {
        RequestCode.GET_ALL_CONSUMER_OFFSET: all_offsets,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: members,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: answering({"subscriptionGroupTable": {"billing": {}, "": {}}}),
        RequestCode.GET_CONSUMER_RUNNING_INFO: lambda asked: response(
            asked, body=fastjson.write({"mqTable": {A: {}, RETRIES: {}}})
        ),
    }


def test_a_group_at_rest_commits_and_is_moved_by_its_offsets(kept: KeepingCluster, backend: Backend) -> None:
    offsets(kept, online=False)
    for broker in ("broker-a", "broker-b", "broker-b"):
        kept.put("orders", b"", broker=broker)
    assert backend.groups.committed_offset("billing", A) is None
    backend.groups.commit("billing", A, 1)
    assert backend.groups.committed_offset("billing", A) == 1
    with Admin(backend) as admin:
        admin.seek("billing", "orders", "latest")
        assert kept.committed("billing", "orders") == {("broker-a", 0): 1, ("broker-b", 0): 2}
        assert [(lag.broker_name, lag.lag, lag.owner) for lag in admin.lag("billing")] == [
            ("broker-a", 0, None),
            ("broker-b", 0, None),
        ]
    assert kept.cluster.asked(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET) == []


def test_4_9_answers_0_for_a_group_that_never_committed(kept: KeepingCluster, backend: Backend) -> None:
    offsets(kept, online=False)
    kept.cluster.script[RequestCode.QUERY_CONSUMER_OFFSET] = lambda asked: response(asked, offset=0)
    assert backend.groups.committed_offset("billing", A) is None
    kept.cluster.state.offsets["billing", "orders", "broker-a", 0] = 0
    assert backend.groups.committed_offset("billing", A) == 0


def test_a_group_that_runs_is_shown_with_its_members(kept: KeepingCluster, backend: Backend) -> None:
    offsets(kept, online=True)
    kept.put("orders", b"", broker="broker-b")
    kept.cluster.state.members["billing"] = {CLIENT}
    with Admin(backend) as admin:
        (info,) = admin.groups()
        assert (info.group, info.topics, info.members) == ("billing", ("orders",), (CLIENT,))
        assert {lag.broker_name: (lag.owner, lag.lag) for lag in admin.lag("billing")} == {
            "broker-a": (CLIENT, 0),
            "broker-b": (None, 1),
        }
        (_, retries, nobody, member) = admin.assignment("billing")
        assert (retries.client_id, retries.topic, retries.queue_ids) == (CLIENT, "%RETRY%billing", (0,))
        assert (nobody.client_id, nobody.broker_name, nobody.queue_ids) == (None, "broker-b", (0,))
        assert (member.client_id, member.pid, member.broker_name, member.queue_ids) == (CLIENT, 4242, "broker-a", (0,))
        (_, subscribed) = admin.subscriptions("billing")
        assert (subscribed.topic, subscribed.subscription, subscribed.members) == ("orders", "paid", (CLIENT,))


def test_nobody_commits_for_a_group_that_runs(kept: KeepingCluster, backend: Backend) -> None:
    offsets(kept, online=True)
    with pytest.raises(QueueOwned, match=CLIENT):
        backend.groups.commit("billing", A, 0)


def test_members_of_4_9_are_moved_only_as_a_whole_and_to_a_time(kept: KeepingCluster, backend: Backend) -> None:
    offsets(kept, online=True)
    kept.put("orders", b"", broker="broker-a")
    kept.put("orders", b"", broker="broker-b")
    kept.cluster.script[RequestCode.INVOKE_BROKER_TO_RESET_OFFSET] = response
    with Admin(backend) as admin:
        with pytest.raises(NotOnCluster, match="stop the members"):
            admin.seek("billing", "orders", 1)
        admin.seek("billing", "orders", "latest")
    asked = [request_fields(each) for each in kept.cluster.asked(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)]
    assert [(each["topic"], each["group"], each["timestamp"]) for each in asked] == [("orders", "billing", -1)] * 2


def test_members_of_5_are_moved_to_any_offset(kept: KeepingCluster, backend: Backend) -> None:
    offsets(kept, online=True)
    kept.put("orders", b"", broker="broker-a")
    kept.put("orders", b"", broker="broker-b")
    kept.cluster.script |= {
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: response,
        RequestCode.GET_BROKER_RUNTIME_INFO: runtime(brokerVersion=479),
    }
    with Admin(backend) as admin:
        admin.seek("billing", "orders", 1)
    asked = [request_fields(each) for each in kept.cluster.asked(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)]
    assert [(each["queueId"], each["offset"], each["isForce"]) for each in asked] == [(0, 1, True)] * 2


def test_a_group_cannot_be_paused(kept: KeepingCluster, backend: Backend) -> None:
    offsets(kept, online=True)
    with Admin(backend) as admin, pytest.raises(NotOnCluster, match="stop its workers"):
        admin.pause("billing")


def test_a_group_at_rest_is_forgotten_by_every_broker_with_its_retries(kept: KeepingCluster, backend: Backend) -> None:
    offsets(kept, online=False)
    kept.put("orders", b"", broker="broker-a")
    backend.groups.commit("billing", A, 1)
    for code in (RequestCode.DELETE_SUBSCRIPTIONGROUP, RequestCode.DELETE_TOPIC_IN_BROKER):
        kept.cluster.script[code] = response
    kept.cluster.script[RequestCode.DELETE_TOPIC_IN_NAMESRV] = response

    with Admin(backend) as admin:
        # When it is tried, nothing is forgotten
        assert [each.committed_offset for each in admin.remove_group("billing", dry_run=True)] == [1]
        assert kept.cluster.asked(RequestCode.DELETE_SUBSCRIPTIONGROUP) == []
        # And when it is meant, each broker is told, and the name server
        admin.remove_group("billing")
        with pytest.raises(UnknownGroup, match="nobody"):
            admin.remove_group("nobody")
    for broker in ("broker-a", "broker-b"):
        (asked,) = kept.cluster.asked(RequestCode.DELETE_SUBSCRIPTIONGROUP, broker)
        fields = request_fields(asked)
        assert (fields["groupName"], fields["removeOffset"], fields["cleanOffset"]) == ("billing", True, True)
        (asked,) = kept.cluster.asked(RequestCode.DELETE_TOPIC_IN_BROKER, broker)
        assert request_fields(asked)["topic"] == "%RETRY%billing"
    (asked,) = kept.cluster.asked(RequestCode.DELETE_TOPIC_IN_NAMESRV)
    assert request_fields(asked)["topic"] == "%RETRY%billing"


def test_a_group_that_runs_is_not_forgotten(kept: KeepingCluster, backend: Backend) -> None:
    offsets(kept, online=True)
    with Admin(backend) as admin, pytest.raises(QueueOwned, match="stop them first"):
        admin.remove_group("billing")
    assert kept.cluster.asked(RequestCode.DELETE_SUBSCRIPTIONGROUP) == []
