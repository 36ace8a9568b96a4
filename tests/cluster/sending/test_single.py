"""One message: what its request says, where it goes, and what its result and its errors tell."""

from __future__ import annotations

import logging
import math
import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import orjson
import pytest

from rmqclient import Compression, Message, Producer
from rmqclient.duration import Duration
from rmqclient.errors import (
    BodyTooLarge,
    InvalidName,
    MessageIllegal,
    MessageRejected,
    NotOnCluster,
    StoreClosed,
    UnknownTopic,
)
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import RequestCode, ResponseCode, request_fields, response
from rmqclient.store import java_hash
from tests.cluster.sending.conftest import SEND, TWO, Answer, broker_of, no, producing, properties_of, stored
from tests.support.cluster.scripted_cluster import ScriptedCluster, scripted_cluster
from tests.support.cluster.standard_answers import route_of, standard_answer

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


def test_a_request_says_what_rocketmqs_client_says() -> None:
    with producing(producer={"group": "shop"}) as (cluster, producer):
        message = Message("orders", b"body", tags="paid", keys=["k1", "k2"], properties={"colour": "blau ü"}, flag=7)
        result = producer.send(message, "customer 4")
    (asked,) = cluster.asked(SEND)
    fields = request_fields(asked)
    properties = properties_of(asked)
    assert asked.body == b"body"
    assert fields.pop("bornTimestamp") > 1_700_000_000_000
    assert fields.pop("properties")
    assert fields == {
        "producerGroup": "shop",
        "topic": "orders",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": result.queue.queue_id,
        "bname": "broker-a",
        "sysFlag": 0,
        "flag": 7,
        "reconsumeTimes": 0,
        "unitMode": False,
        "batch": False,
    }
    assert properties == {
        "TAGS": "paid",
        "KEYS": "k1 k2",
        "colour": "blau ü",
        "UNIQ_KEY": result.message_id,
        "__SHARDINGKEY": "customer 4",
    }


def test_a_result_says_where_the_broker_has_the_message() -> None:
    with producing({SEND: lambda asked: stored(asked, 0x1234)}) as (_, producer):
        result = producer.send(Message("orders", b""))
    assert (result.queue.topic, result.queue.broker_name) == ("orders", "broker-a")
    assert (result.queue_offset, result.commit_log_offset) == (0x1234, 0x1234)
    assert result.offset_message_id == f"7F00000100002A9F{0x1234:016X}"


def test_the_queues_of_all_brokers_take_turns() -> None:
    with producing(brokers=TWO, topics={"orders": 3}) as (_, producer):
        queues = Counter(producer.send(Message("orders", b"")).queue for _ in range(12))
    assert len(queues) == 6
    assert set(queues.values()) == {2}


def test_a_sharding_key_has_the_queue_that_java_gives_it() -> None:
    with producing(brokers=TWO, topics={"orders": 3}) as (_, producer):
        queues = {
            key: producer.send(Message("orders", b""), key).queue for key in ("N14228", "polygenelubricants", "ü")
        }
    order = [(broker, number) for broker in TWO for number in range(3)]
    for key, queue in queues.items():
        assert (queue.broker_name, queue.queue_id) == order[abs(java_hash(key)) % 6]


def test_a_body_is_compressed_and_says_how() -> None:
    with producing(producer={"compression": Compression.ZLIB}) as (cluster, producer):
        producer.send(Message("orders", b"again " * 1_000))
    (asked,) = cluster.asked(SEND)
    assert request_fields(asked)["sysFlag"] == 0x301
    assert len(asked.body) < 100


def test_names_on_the_wire_have_the_namespace_of_the_url() -> None:

    with scripted_cluster() as cluster, Producer(f"rocketmq://{cluster.address}/bank", group="shop") as producer:
        result = producer.send(Message("orders", b""))
    (asked,) = cluster.asked(SEND)
    fields = request_fields(asked)
    assert (fields["topic"], fields["producerGroup"]) == ("bank%orders", "bank%shop")
    assert properties_of(asked)["INSTANCE_ID"] == "bank"
    assert result.queue.topic == "orders"


# --- topics -------------------------------------------------------------------------------------------


def test_a_topic_that_does_not_exist_is_made_by_the_broker() -> None:
    with producing(topics={"TBW102": 8}) as (_, producer):
        queues = {producer.send(Message("new", b"")).queue for _ in range(8)}
    assert sorted((queue.topic, queue.queue_id) for queue in queues) == [("new", number) for number in range(4)]


def test_a_topic_that_brokers_do_not_make_is_unknown_and_the_error_says_what_to_do() -> None:
    with producing(topics={}) as (cluster, producer):
        with pytest.raises(UnknownTopic, match=r"'new'.*autoCreateTopicEnable.*create_topic"):
            producer.send(Message("new", b""))
        with pytest.raises(UnknownTopic):
            producer.send_async(Message("new", b"")).result(10)
        assert not cluster.asked(SEND)


def test_a_topic_that_may_only_be_read_takes_no_message_and_the_error_says_so() -> None:
    with producing(brokers=TWO) as (cluster, producer):
        cluster.script[ROUTE] = route_of_orders(cluster, {}, perm=4)
        with pytest.raises(UnknownTopic, match="'orders' is not writable"):
            producer.send(Message("orders", b""))
        with pytest.raises(UnknownTopic):
            producer.send_async(Message("orders", b"")).result(10)
        assert not cluster.asked(SEND)


def test_a_topic_whose_master_is_away_does_not_move_to_a_broker_that_does_not_have_it() -> None:
    with producing(brokers=TWO) as (cluster, producer):
        cluster.script[ROUTE] = route_of_orders(cluster, {"brokerAddrs": {"1": cluster.brokers["broker-a"]}})
        with pytest.raises(UnknownTopic, match="master"):
            producer.send(Message("orders", b""), "customer 4")
        assert not cluster.asked(SEND)


def route_of_orders(cluster: ScriptedCluster, broker: dict[str, Any], perm: int = 6) -> Answer:
    """Return what answers a route: ``orders`` on the first broker, with these fields; other topics on all brokers."""

    def answer(asked: Frame) -> Frame:
        if request_fields(asked)["topic"] != "orders":
            return standard_answer(cluster.state, asked, "broker-a")
        route = route_of(cluster.state, 4)
        queues = {**route["queueDatas"][0], "perm": perm}
        orders = {**route, "brokerDatas": [{**route["brokerDatas"][0], **broker}], "queueDatas": [queues]}
        return response(asked, body=orjson.dumps(orders))

    return answer


@pytest.mark.parametrize("topic", ["", "a b", "x" * 128, "SCHEDULE_TOPIC_XXXX"])
def test_a_topic_that_no_message_may_be_sent_to_is_refused_here(topic: str) -> None:
    with producing() as (cluster, producer):
        with pytest.raises(InvalidName):
            producer.send(Message(topic, b""))
        assert not cluster.asked(SEND)


# --- what a broker refuses, and what is refused here ---------------------------------------------------


def test_a_message_that_a_broker_finds_illegal_is_refused_at_once() -> None:
    with producing({SEND: no(ResponseCode.MESSAGE_ILLEGAL, "too long")}, brokers=TWO) as (cluster, producer):
        with pytest.raises(MessageIllegal, match="too long") as told:
            producer.send(Message("orders", b""))
        assert len(cluster.asked(SEND)) == 1
    assert isinstance(told.value, MessageRejected)
    assert not told.value.stored


def test_a_body_that_is_too_long_is_not_sent() -> None:
    with producing() as (cluster, producer):
        with pytest.raises(BodyTooLarge, match="4,194,305 bytes"):
            producer.send(Message("orders", bytes((4 << 20) + 1)))
        assert not cluster.asked(SEND)


@pytest.mark.parametrize("version", [407, 479])
def test_what_no_broker_can_do_says_what_to_do_instead(version: int) -> None:
    with producing(version=version) as (cluster, producer):
        with pytest.raises(NotOnCluster, match="Inbox"):
            producer.send_once(Message("orders", b""), "key")
        with pytest.raises(NotOnCluster, match="waiting message"):
            producer.cancel("7F00000100002A9F0000000000000000")
        with pytest.raises(NotOnCluster, match="compressed as a whole"):
            producer.send_batch([Message("orders", b"")], compression=Compression.ZLIB)
        with pytest.raises(NotOnCluster, match="one by one"):
            producer.send_batch([Message("orders", b"")], delay_level=3)
        assert not cluster.asked(SEND)


@pytest.mark.parametrize(
    "within", [timedelta(minutes=5), timedelta(hours=72, seconds=1), timedelta(days=365), math.inf]
)
def test_a_window_of_any_length_is_refused_because_brokers_keep_no_key_unique(within: Duration) -> None:
    with producing() as (cluster, producer):
        with pytest.raises(NotOnCluster):
            producer.send_once(Message("orders", b""), "key", within=within)
        assert not cluster.asked(SEND)


def test_a_broker_that_could_not_flush_in_time_has_the_message(caplog: pytest.LogCaptureFixture) -> None:
    with (
        producing({SEND: lambda asked: stored(asked, 5, ResponseCode.FLUSH_DISK_TIMEOUT)}) as (cluster, producer),
        caplog.at_level(logging.WARNING),
    ):
        results = [producer.send(Message("orders", b"")), producer.send_async(Message("orders", b"")).result(20)]
        assert len(cluster.asked(SEND)) == 2
    assert [result.queue_offset for result in results] == [5, 5]
    (line,) = [line.message for line in caplog.records if "FLUSH_DISK_TIMEOUT" in line.message]
    assert f"{results[0].message_id} is stored by broker broker-a" in line, "and the second is not told at once"


# --- delays -------------------------------------------------------------------------------------------


def test_a_delay_level_is_told_to_the_broker() -> None:
    with producing() as (cluster, producer):
        producer.send(Message("orders", b""), delay_level=18)
        with pytest.raises(ValueError, match="from 1 to 18"):
            producer.send(Message("orders", b""), delay_level=19)
    assert [properties_of(asked)["DELAY"] for asked in cluster.asked(SEND)] == ["18"]


def test_a_time_is_told_to_brokers_with_a_timer() -> None:
    with producing(version=479) as (cluster, producer):
        producer.send(Message("orders", b""), delay=60)
    (asked,) = cluster.asked(SEND)
    wait_ms = int(properties_of(asked)["TIMER_DELIVER_MS"]) - request_fields(asked)["bornTimestamp"]
    assert 50_000 < wait_ms <= 60_001


def test_a_time_that_brokers_of_4_9_cannot_keep_is_refused() -> None:
    with producing(version=407) as (cluster, producer):
        with pytest.raises(NotOnCluster, match="delay_level=1 to 18"):
            producer.send(Message("orders", b""), delay=60)
        assert not cluster.asked(SEND)


# --- members, threads ---------------------------------------------------------------------------------


def test_brokers_know_the_group_of_a_producer_until_it_is_closed() -> None:
    with producing(producer={"group": "shop"}) as (cluster, producer):
        producer.send(Message("orders", b""))
        assert b'"groupName":"shop"' in cluster.wait_for(RequestCode.HEART_BEAT)[0].body
        producer.close()
        (left,) = cluster.wait_for(RequestCode.UNREGISTER_CLIENT)
        assert request_fields(left)["producerGroup"] == "shop"
        with pytest.raises(StoreClosed):
            producer.send(Message("orders", b""))


def test_many_threads_send_through_one_producer_and_no_send_makes_a_thread() -> None:
    with producing(brokers=TWO) as (cluster, producer):
        producer.send(Message("orders", b""))
        before, most = threading.active_count(), []

        def send() -> None:
            for _ in range(20):
                producer.send(Message("orders", b""))
            most.append(threading.active_count())

        threads = [threading.Thread(target=send) for _ in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert max(most) <= before + len(threads)
        assert Counter(broker_of(asked) for asked in cluster.asked(SEND)).total() == 1 + 64 * 20
