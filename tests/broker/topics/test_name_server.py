"""What a name server is asked: routes, clusters, lists of topics, permissions, texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqclient.broker.address import Address
from rmqclient.remoting.bodies import KVTable, TopicList, TopicRoute
from rmqclient.remoting.codes import RequestCode
from rmqclient.store.settings.config_file import TopicConfig
from tests.broker.asking import Asking, AskingPeer, asking

FOUR = TopicConfig(read_queue_count=4, write_queue_count=4)


def test_a_route_names_the_address_by_which_its_asker_came_in(client: Asking) -> None:
    client.broker.topics.create("orders", FOUR)
    for host, text in (("192.168.7.1", "192.168.7.1:9876"), ("::1", "[::1]:9876")):
        answer = client.at(Address(host, 9876)).ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
        assert json.loads(answer.body) == {
            "brokerDatas": [{"brokerAddrs": {"0": text}, "brokerName": "broker-a", "cluster": "DefaultCluster"}],
            "filterServerTable": {},
            "queueDatas": [
                {"brokerName": "broker-a", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4}
            ],
        }


@pytest.mark.parametrize(
    ("version", "accepts", "key"),
    [(317, None, b"{0:"), (400, None, b"{0:"), (400, True, b'{"0":'), (401, None, b'{"0":'), (479, None, b'{"0":')],
)
def test_a_route_has_bare_keys_for_old_clients(client: Asking, version: int, accepts: bool | None, key: bytes) -> None:
    answer = client.ask(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102", acceptStandardJsonOnly=accepts, version=version
    )
    assert b'"brokerAddrs":' + key in answer.body


def test_an_unknown_topic_has_no_route(client: Asking) -> None:
    answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="no_such_topic")
    assert answer.code == 17
    assert answer.remark == (
        "No topic route info in name server for the topic: no_such_topic\n"
        "See http://rocketmq.apache.org/docs/faq/ for further details."
    )


@pytest.mark.guarantee("G49")
def test_only_a_name_that_a_topic_can_have_is_remembered_as_awaited(client: Asking) -> None:
    waiting = AskingPeer()
    for topic in ("later", "x" * 200_000, "no topic/", ""):
        assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, peer=waiting).code == 17
    awaited = client.broker.groups.awaited
    assert [topic for topic in ("later", "x" * 200_000, "no topic/", "") if awaited.awaits(waiting, topic)] == ["later"]


def test_new_topics_can_be_made_by_their_first_message(client: Asking) -> None:
    answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
    (queues,) = TopicRoute.decode(answer.body).queues
    assert (queues.perm, queues.write_queues) == (7, 8)


def test_the_cluster_is_this_broker(client: Asking) -> None:
    assert client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:9876"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster"}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )


def test_topics_are_listed_with_those_of_the_system(client: Asking) -> None:
    client.broker.topics.create("orders", FOUR)
    for answer in (
        client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
        client.ask(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="DefaultCluster"),
    ):
        assert {"orders", "TBW102", "DefaultCluster_REPLY_TOPIC"} <= set(TopicList.decode(answer.body).topics)
    unknown = client.ask(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="nope")
    assert (unknown.code, TopicList.decode(unknown.body).topics) == (0, ())


def test_the_list_of_system_topics_names_a_broker_to_ask(client: Asking) -> None:
    answer = TopicList.decode(client.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body)
    assert (set(answer.topics), answer.broker_address) == ({"DefaultCluster", "broker-a"}, "127.0.0.1:9876")


def test_writing_can_be_taken_from_all_topics_and_given_back(client: Asking) -> None:
    client.broker.topics.create("orders", FOUR)
    wiped = client.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert int(wiped.fields["wipeTopicCount"]) == len(client.broker.topics.configs())
    assert _perm(client) == 4
    client.broker.topics.create("later", FOUR)
    assert _perm(client, "later") == 6
    added = client.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert int(added.fields["addTopicCount"]) == len(client.broker.topics.configs())
    assert _perm(client) == 6


def test_no_other_broker_registers(client: Asking) -> None:
    answer = client.ask(
        RequestCode.REGISTER_BROKER,
        brokerName="other",
        brokerAddr="10.0.0.1:10911",
        clusterName="DefaultCluster",
        haServerAddr="10.0.0.1:10912",
        brokerId=0,
    )
    assert (answer.code, "no other broker" in (answer.remark or "")) == (1, True)


def test_a_slave_of_this_broker_is_told_where_its_log_is_sent(tmp_path: Path) -> None:
    slave: dict[str, Any] = {
        "brokerName": "broker-a",
        "brokerAddr": "10.0.0.2:10911",
        "clusterName": "DefaultCluster",
        "haServerAddr": "10.0.0.2:10912",
        "brokerId": 1,
    }
    with asking(tmp_path, ha_listen=Address("127.0.0.1", 10_912)) as client:
        answer = client.ask(RequestCode.REGISTER_BROKER, **slave)
        assert answer.fields == {"masterAddr": "127.0.0.1:9876", "haServerAddr": "127.0.0.1:10912"}
        assert client.ask(RequestCode.REGISTER_BROKER, **{**slave, "brokerName": "broker-b"}).code == 1
        assert client.ask(RequestCode.REGISTER_BROKER, **{**slave, "brokerId": 0}).code == 1


def test_texts_are_kept_over_a_restart(tmp_path: Path) -> None:
    space: dict[str, Any] = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}
    with asking(tmp_path) as client:
        assert client.ask(RequestCode.PUT_KV_CONFIG, **space, value="broker-a:4").code == 0
    with asking(tmp_path) as client:
        assert client.ask(RequestCode.GET_KV_CONFIG, **space).fields == {"value": "broker-a:4"}
        listed = client.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="ORDER_TOPIC_CONFIG")
        assert KVTable.decode(listed.body).table == {"orders": "broker-a:4"}
        assert client.ask(RequestCode.DELETE_KV_CONFIG, **space).code == 0
        answer = client.ask(RequestCode.GET_KV_CONFIG, **space)
        assert (answer.code, answer.remark) == (22, "No config item, Namespace: ORDER_TOPIC_CONFIG Key: orders")
        unknown = client.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="nope")
        assert (unknown.code, unknown.remark) == (22, "No config item, Namespace: nope")


def _perm(client: Asking, topic: str = "orders") -> int:
    answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
    return TopicRoute.decode(answer.body).queues[0].perm
