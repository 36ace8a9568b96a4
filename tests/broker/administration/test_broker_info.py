"""What a broker tells of itself: figures, statistics, settings; what it does not let itself be told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqclient import Message, Producer, PullConsumer
from rmqclient.remoting.bodies import BrokerStats, KVTable
from rmqclient.remoting.codes import RequestCode
from tests.broker.asking import Asking, asking


def test_the_figures_are_those_of_the_store(client: Asking) -> None:
    _send(client, 5)
    state = client.broker.store.state
    told = _figures(client)
    assert told["msgPutTotalTodayNow"] == "5"
    assert told["commitLogMaxOffset"] == str(state.published_to)
    assert (told["brokerVersion"], told["brokerVersionDesc"]) == ("407", "V4_9_7")
    assert int(told["earliestMessageTimeStamp"]) == client.broker.store.messages.read(0).store_timestamp
    assert 0 <= float(told["commitLogDiskRatio"]) <= 1
    assert float(told["putTps"].split()[0]) > 0
    assert told["getTransferedTps"] == told["getTransferredTps"] == "0.0 0.0 0.0"


def test_an_empty_store_has_no_earliest_message(client: Asking) -> None:
    assert _figures(client)["earliestMessageTimeStamp"] == "-1"


def test_delayed_messages_are_told_by_level(client: Asking) -> None:
    with Producer(client.broker.store.root) as producer:
        producer.send(Message(topic="orders", body=b"late"), delay_level=18)
    assert _figures(client)["scheduleMessageOffset_18"] == "0,1"


def test_what_came_and_what_was_finished_is_counted_by_topic_and_group(client: Asking) -> None:
    asked: dict[str, Any] = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "orders"}
    answer = client.ask(RequestCode.VIEW_BROKER_STATS_DATA, b"", version=407, **asked)
    assert (answer.code, answer.remark) == (1, "The stats <TOPIC_PUT_NUMS> <orders> not exist")
    _send(client, 4)
    with PullConsumer(client.broker.store.root, group="readers") as consumer:
        for queue in consumer.queues("orders"):
            consumer.commit(queue, consumer.max_offset(queue))
    came = BrokerStats.decode(client.ask(RequestCode.VIEW_BROKER_STATS_DATA, b"", version=407, **asked).body)
    assert (came.minute.sum, came.hour.sum, came.day.sum) == (4, 4, 4)
    taken = client.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName="GROUP_GET_NUMS", statsKey="orders@readers")
    assert taken.code in (0, 1)  # 1: the group began at the end of every queue


def test_the_settings_are_those_of_the_server(tmp_path: Path) -> None:
    with asking(tmp_path, broker_name="b1", cluster_name="C1", auto_create_topics=False) as client:
        answer = client.ask(RequestCode.GET_BROKER_CONFIG)
        told = dict(line.split("=", 1) for line in answer.body.decode().splitlines())
    assert answer.fields["version"].startswith('{"counter":0')
    assert (told["brokerName"], told["brokerClusterName"], told["autoCreateTopicEnable"]) == ("b1", "C1", "false")
    assert (told["storePathRootDir"], told["listenPort"]) == ("the store", "9876")


@pytest.mark.parametrize("code", [RequestCode.GET_BROKER_CONFIG, RequestCode.GET_NAMESRV_CONFIG])
def test_no_setting_tells_clients_where_the_store_lies(tmp_path: Path, code: RequestCode) -> None:
    with asking(tmp_path) as client:
        body = client.ask(code).body.decode()
    assert str(tmp_path) not in body
    assert "=the store/" in body


def test_a_setting_cannot_be_changed_and_the_server_says_so(client: Asking) -> None:
    answer = client.ask(RequestCode.UPDATE_BROKER_CONFIG, b"sendThreadPoolQueueCapacity=10001\n")
    assert (answer.code, "sendThreadPoolQueueCapacity" in (answer.remark or "")) == (1, True)


def test_every_figure_is_there_that_the_exporter_cannot_do_without(client: Asking) -> None:
    _send(client, 3)
    told = _figures(client)
    assert int(told["putMessageSizeTotal"]) > 3 * 80
    assert float(told["putMessageAverageSize"]) == pytest.approx(int(told["putMessageSizeTotal"]) / 3, abs=0.01)
    assert told["putMessageDistributeTime"] == "null"
    for name in ("putTps", "getMissTps", "getFoundTps", "getTotalTps", "getTransferredTps"):
        assert [float(each) >= 0 for each in told[name].split()] == [True] * 3
    for pool in ("send", "pull", "query"):
        assert told[f"{pool}ThreadPoolQueueCapacity"] == told[f"{pool}ThreadPoolQueueSize"] == "0"
    all_puts = client.ask(RequestCode.VIEW_BROKER_STATS_DATA, statsName="BROKER_PUT_NUMS", statsKey="DefaultCluster")
    assert BrokerStats.decode(all_puts.body).minute.sum == 3


def test_cleaning_up_is_answered(client: Asking) -> None:
    for code in (
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
    ):
        assert client.ask(code).code == 0


def test_a_code_that_nobody_knows_is_answered_as_by_a_broker(client: Asking) -> None:
    answer = client.ask(RequestCode.POP_MESSAGE, consumerGroup="g", topic="t", queueId=-1, maxMsgNums=1,
                        invisibleTime=1, pollTime=1, bornTime=1, initMode=0)  # fmt: skip
    assert (answer.code, answer.remark) == (3, " request type 200050 not supported")


def _send(client: Asking, count: int) -> None:
    with Producer(client.broker.store.root) as producer:
        for _ in range(count):
            producer.send(Message(topic="orders", body=b"x"))


def _figures(client: Asking) -> dict[str, str]:
    return KVTable.decode(client.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table


@pytest.mark.parametrize(
    ("code", "fields", "answer"),
    [
        (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {"accessKey": "key"}, 209),
        (RequestCode.DELETE_ACL_CONFIG, {"accessKey": "key"}, 210),
        (RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "*", "aclFileFullPath": "x"}, 211),
    ],
)
def test_access_keys_are_not_changed_by_requests(
    client: Asking, code: RequestCode, fields: dict[str, Any], answer: int
) -> None:
    refused = client.ask(code, **fields)
    assert refused.code == answer
    assert "--make-key" in str(refused.remark)
