"""Requests and replies by way of brokers, in both directions."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.backend.limits import Limits
from rmqclient.calling.answers import answering
from rmqclient.calling.event_loop import EventLoop
from rmqclient.calling.hooks import Hooks
from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.sending import replies as replies_module
from rmqclient.cluster.sending.producers import ClusterProducers
from rmqclient.delivery.caller import make_caller
from rmqclient.errors import MessageRejected, RequestTimeout
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import RequestCode, ResponseCode, request, request_fields, response
from rmqclient.store import MessageQueue
from rmqclient.store.wire import decode_records
from tests.cluster.sending.conftest import SEND, TWO, broker_of, producing, properties_of, stored
from tests.support.cluster.scripted_cluster import ScriptedCluster, scripted_cluster
from tests.support.cluster.standard_answers import Cluster, route_of
from tests.support.oracle.reference import ReferenceRecord, encode, format_properties

REPLY = RequestCode.SEND_REPLY_MESSAGE_V2
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
LONG_S = 20.0


def pushed(asked: Frame, body: bytes, host: str = "127.0.0.1:5000", **changed: object) -> Frame:
    """Return the push of the reply to a request that was sent."""
    sent = properties_of(asked)
    properties = {name: sent[name] for name in ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL")} | {"MSG_TYPE": "reply"}
    fields: dict[str, object] = {
        "producerGroup": "repliers",
        "topic": "DefaultCluster_REPLY_TOPIC",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": 1_000,
        "flag": 0,
        "properties": format_properties(properties).decode(),
        "bornHost": host,
        "storeHost": host,
        "storeTimestamp": 2_000,
    }
    return request(PUSH, body, **(fields | changed))


def received(broker: str = "broker-b", **properties: str) -> ReceivedMessage:
    """Return a request that was received from a broker."""
    asked = {"CORRELATION_ID": "c1", "REPLY_TO_CLIENT": "me@1", "TTL": "3000", "CLUSTER": "DefaultCluster"}
    record = ReferenceRecord(topic="orders", body=b"question", properties=format_properties(asked | properties))
    (message,) = decode_records(encode(record), MessageQueue("orders", 0, broker))
    return message


# --- asking -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1:5000", "/127.0.0.1:5000", "[::1]:5000"])
def test_a_reply_that_a_broker_pushes_ends_the_request(host: str) -> None:
    with producing(brokers=TWO) as (cluster, producer):
        future = producer.request_async(Message("orders", b"question"), LONG_S)
        (asked,) = cluster.wait_for(SEND)
        cluster.push(pushed(asked, b"answer", host), broker_of(asked))
        reply = future.result(LONG_S)
        (answer,) = cluster.wait_for_answers(1)
    assert (reply.body, reply.topic) == (b"answer", "DefaultCluster_REPLY_TOPIC")
    assert (reply.born_timestamp, reply.store_timestamp) == (1_000, 2_000)
    assert reply.properties["CORRELATION_ID"] == properties_of(asked)["CORRELATION_ID"]
    assert answer.code == 0


def test_a_request_names_the_client_that_brokers_know() -> None:
    with producing() as (cluster, producer):
        future = producer.request_async(Message("orders", b"", properties={"colour": "blue"}), 30)
        (asked,) = cluster.wait_for(SEND)
        beat = cluster.wait_for(RequestCode.HEART_BEAT)[0]
        cluster.push(pushed(asked, b""))
        future.result(LONG_S)
    sent = properties_of(asked)
    assert f'"clientID":"{sent["REPLY_TO_CLIENT"]}"'.encode() in beat.body
    assert (sent["TTL"], sent["colour"]) == ("30000", "blue")
    assert "CLUSTER" not in sent, "a broker adds it"


def test_every_broker_of_the_cluster_knows_a_requester_before_it_asks() -> None:
    with producing(brokers=TWO) as (cluster, producer):
        first = Cluster(None, {"broker-a": cluster.brokers["broker-a"]})

        def route(asked: Frame) -> Frame:
            has_all = request_fields(asked)["topic"] == "DefaultCluster_REPLY_TOPIC"
            return response(asked, body=orjson.dumps(route_of(cluster.state if has_all else first, 1)))

        cluster.script[RequestCode.GET_ROUTEINFO_BY_TOPIC] = route
        producer.request_async(Message("orders", b""), LONG_S).cancel()
        for broker in TWO:
            assert cluster.asked(RequestCode.HEART_BEAT, broker)


def test_a_request_can_be_awaited_and_replies_find_their_requests() -> None:
    async def ask(cluster: ScriptedCluster, producer: Producer) -> list[bytes]:
        futures = [producer.request_async(Message("orders", b"%d" % number), LONG_S) for number in range(10)]
        for asked in reversed(cluster.wait_for(SEND, 10)):
            cluster.push(pushed(asked, b"re " + asked.body))
        return [(await future).body for future in futures]

    with producing() as (cluster, producer):
        assert asyncio.run(ask(cluster, producer)) == [b"re %d" % number for number in range(10)]


def test_a_request_without_a_reply_ends_in_time_and_a_late_reply_is_dropped() -> None:
    with producing() as (cluster, producer):
        with pytest.raises(RequestTimeout) as told:
            producer.request(Message("orders", b""), 0.1)
        (asked,) = cluster.asked(SEND)
        cluster.push(pushed(asked, b"late"))
        cluster.wait_for_answers(1)
        future = producer.request_async(Message("orders", b""), LONG_S)
        cluster.push(pushed(cluster.wait_for(SEND, 2)[1], b"next"))
        assert future.result(LONG_S).body == b"next"
    assert told.value.stored


def test_a_requester_that_asks_nothing_keeps_few_replies_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies_module, "_MOST_KEPT", 3)
    with scripted_cluster() as cluster:
        client = ClusterClient(ClusterURL.parse(f"rocketmq://{cluster.address}"))
        idle = ClusterProducers(client, Limits()).replies()
        for number in range(5):
            idle.came(received(KEYS=str(number)))
        assert [reply.keys for reply in idle.take()] == [("2",), ("3",), ("4",)]
        client.close()


def test_a_push_that_makes_no_sense_is_answered_and_harms_no_request() -> None:
    with producing() as (cluster, producer):
        future = producer.request_async(Message("orders", b""), LONG_S)
        (asked,) = cluster.wait_for(SEND)
        cluster.push(pushed(asked, b"bad", bornHost="nowhere"))
        cluster.push(pushed(asked, b"bad", sysFlag=0, topic="t" * 300))
        assert {answer.code for answer in cluster.wait_for_answers(2)} == {ResponseCode.SYSTEM_ERROR}
        cluster.push(pushed(asked, b"good"))
        assert future.result(LONG_S).body == b"good"


# --- replying -----------------------------------------------------------------------------------------


def test_a_reply_goes_to_the_broker_that_had_the_request() -> None:
    with producing({REPLY: stored}, brokers=TWO) as (cluster, producer):
        producer.send_reply(received("broker-b"), b"answer")
        (asked,) = cluster.asked(REPLY)
    properties = properties_of(asked)
    assert (asked.body, broker_of(asked)) == (b"answer", "broker-b")
    assert request_fields(asked)["topic"] == "DefaultCluster_REPLY_TOPIC"
    assert properties.pop("UNIQ_KEY")
    assert properties == {"MSG_TYPE": "reply", "CORRELATION_ID": "c1", "REPLY_TO_CLIENT": "me@1", "TTL": "3000"}


def test_a_reply_goes_to_another_broker_when_the_first_is_gone() -> None:
    with producing({REPLY: stored}, brokers=("broker-a", "broker-b", "broker-c")) as (cluster, producer):
        cluster.stop("broker-c")
        producer.send_reply(received("broker-c"), b"answer")
        assert broker_of(cluster.asked(REPLY)[0]) == "broker-a"


def test_a_requester_that_is_gone_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    def gone(asked: Frame) -> Frame:
        return response(asked, ResponseCode.SYSTEM_ERROR, remark="push reply message fail")

    with producing({REPLY: gone}) as (_, producer), caplog.at_level(logging.WARNING):
        request = received("broker-a")
        producer.send_reply(request, b"answer")
    assert "did not reach its requester" in caplog.text
    assert "push reply message fail" in caplog.text


def test_a_loop_goes_on_while_the_reply_of_its_handler_is_under_way() -> None:
    # Given a broker that takes a reply only when the loop that sent it has gone on
    gone_on = threading.Event()

    def take(asked: Frame) -> Frame:
        return stored(asked) if gone_on.wait(LONG_S) else response(asked, ResponseCode.SYSTEM_ERROR)

    app = App("nowhere")

    @app.handler("orders", group="repliers", replies=True)
    async def answer(message: ReceivedMessage) -> bytes:
        return b"re " + message.body

    async def handle(cluster: ScriptedCluster, call: Callable[[ReceivedMessage], Coroutine[Any, Any, None]]) -> None:
        replying = asyncio.create_task(call(received()))
        while not cluster.asked(REPLY):
            await asyncio.sleep(0.001)
        gone_on.set()
        await replying

    with producing({REPLY: take}, brokers=TWO) as (cluster, producer):
        (handler,) = app.handlers
        asyncio.run(handle(cluster, answering(producer._replier, handler, make_caller(handler, Hooks(), EventLoop()))))
        assert [asked.body for asked in cluster.asked(REPLY)] == [b"re question"]


def test_what_is_no_request_has_no_reply() -> None:
    with producing({REPLY: stored}) as (cluster, producer):
        with pytest.raises(MessageRejected, match="is not a request"):
            producer.send_reply(received(CORRELATION_ID=""), b"answer")
        assert not cluster.asked(REPLY)
