"""Topics, as tools make, change, delete and look at them."""

from __future__ import annotations

from typing import Any

import pytest

from rmqclient import Message, Producer
from rmqclient.remoting.bodies import TopicConfig, TopicList, TopicStats, TopicTable
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue
from tests.broker.asking import Asking


def test_all_queues_of_a_new_topic_are_listed_at_once(client: Asking) -> None:
    assert _update(client, read=8, write=6).code == 0
    stats = TopicStats.decode(client.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="orders").body)
    assert sorted(stats.queues) == [MessageQueue("orders", number, "broker-a") for number in range(8)]
    assert {(each.min_offset, each.max_offset, each.last_update_timestamp) for each in stats.queues.values()} == {
        (0, 0, 0)
    }


def test_queues_show_what_they_hold_and_when_the_last_message_came(client: Asking) -> None:
    _update(client, read=1, write=1)
    with Producer(client.broker.store.root) as producer:
        for _ in range(3):
            producer.send(Message(topic="orders", body=b"x"))
    stored = client.broker.store.messages.at(MessageQueue("orders", 0), 2).store_timestamp
    stats = TopicStats.decode(client.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="orders").body)
    (told,) = stats.queues.values()
    assert (told.min_offset, told.max_offset, told.last_update_timestamp) == (0, 3, stored)


def test_an_unknown_topic_has_no_queues(client: Asking) -> None:
    answer = client.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="nope")
    assert (answer.code, answer.remark) == (17, "topic[nope] not exist")


def test_the_permission_and_the_number_of_queues_can_be_changed(client: Asking) -> None:
    _update(client)
    _update(client, read=5, write=3, perm=4)
    told = TopicConfig.decode(client.ask(RequestCode.GET_TOPIC_CONFIG, topic="orders").body)
    assert told == TopicConfig("orders", 5, 3, 4, attributes={})
    assert client.ask(RequestCode.GET_TOPIC_CONFIG, topic="nope").code == 17


def test_the_table_of_topics_has_a_version_that_rises(client: Asking) -> None:
    before = TopicTable.decode(client.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body)
    _update(client)
    after = TopicTable.decode(client.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body)
    assert after.topics["orders"] == TopicConfig("orders", 4, 4)
    assert after.topics.keys() - before.topics.keys() == {"orders"}
    assert after.version.counter == before.version.counter + 1


def test_a_deleted_topic_is_in_no_list(client: Asking) -> None:
    _update(client)
    assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="orders").code == 0
    assert client.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="orders").code == 0
    assert client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders").code == 17
    assert "orders" not in TopicList.decode(client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body).topics
    assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="%DLQ%never").code == 0


@pytest.mark.parametrize("topic", ["TBW102", "broker-a", "rmq_sys_wheel_timer", "DefaultCluster_REPLY_TOPIC"])
def test_nobody_changes_or_deletes_a_topic_of_the_system(client: Asking, topic: str) -> None:
    for answer in (_update(client, topic), client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)):
        assert (answer.code, answer.remark) == (1, f"The topic[{topic}] is conflict with system topic.")


def test_names_of_system_topics_are_told(client: Asking) -> None:
    told = TopicList.decode(client.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body).topics
    assert {"TBW102", "RMQ_SYS_TRANS_HALF_TOPIC", "broker-a", "DefaultCluster"} <= set(told)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"topic": "../../etc"}, "illegal characters"),
        ({"read": 0}, "1 to 1024"),
        ({"write": 2000}, "1 to 1024"),
        ({"perm": 99}, "perm is 99"),
        ({"kind": "NO_TAG"}, "SINGLE_TAG"),
    ],
)
def test_what_no_topic_can_be_is_refused(client: Asking, change: dict[str, Any], text: str) -> None:
    answer = _update(client, **change)
    assert answer.code == 1
    assert text in (answer.remark or "")


def test_a_newer_client_makes_a_compact_topic(client: Asking) -> None:
    answer = _update(client, attributes="+cleanup.policy=COMPACTION,+message.type=NORMAL")
    assert answer.code == 0
    assert client.broker.store.topics.is_compact("orders")


def test_a_flag_that_no_topic_has_is_refused_and_other_topics_can_be_read(client: Asking) -> None:
    _update(client, topic="known")
    refused = _update(client, flag=-1)
    assert (refused.code, refused.remark) == (1, "topic[orders]: topicSysFlag is -1: 0 to 2147483647")
    assert "orders" not in client.broker.topics.configs()
    many = b'{"topicConfigList":[{"topicName":"orders","topicSysFlag":4294967296}]}'
    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, many).code == 1
    assert client.broker.topics.configs().keys() >= {"known"}


def _update(
    client: Asking,
    topic: str = "orders",
    *,
    read: int = 4,
    write: int = 4,
    perm: int = 6,
    kind: str = "SINGLE_TAG",
    flag: int = 0,
    attributes: str | None = None,
) -> Frame:
    return client.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=read,
        writeQueueNums=write,
        perm=perm,
        topicFilterType=kind,
        topicSysFlag=flag,
        order=False,
        attributes=attributes,
    )
