"""Undecided transactions, as the topics of brokers show them."""

from __future__ import annotations

import pytest

from rmqclient.backend import Backend
from rmqclient.errors import NotOnCluster
from rmqclient.remoting.bodies import fastjson
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields, response
from rmqclient.sending import transactions
from rmqclient.store import HALF_TOPIC, OPERATION_TOPIC
from tests.support.cluster.keeping_cluster import KeepingCluster

TOPICS = {"orders": 1, HALF_TOPIC: 1}


def put_half(kept: KeepingCluster, message_id: str) -> None:
    kept.put(
        HALF_TOPIC,
        message_id.encode(),
        broker="broker-b",
        UNIQ_KEY=message_id,
        REAL_TOPIC="orders",
        REAL_QID="0",
        PGROUP="payers",
        TRANSACTION_CHECK_TIMES="2",
    )


def with_operations(kept: KeepingCluster, *bodies: bytes) -> None:
    """Let a 4.9 broker have operations, which it tells only one by one."""
    places = [kept.put(OPERATION_TOPIC, body, broker="broker-b").commit_log_offset for body in bodies]

    def entries(asked: Frame) -> Frame:
        fields = request_fields(asked)
        found = places[fields["index"] : fields["index"] + fields["count"]]
        is_there = asked in kept.cluster.asked(RequestCode.QUERY_CONSUME_QUEUE, "broker-b")
        data = [{"physicOffset": place} for place in found] if is_there else []
        return response(asked, body=fastjson.write({"queueData": data}))

    kept.cluster.script[RequestCode.QUERY_CONSUME_QUEUE] = entries


@pytest.fixture(autouse=True)
def three_halves(kept: KeepingCluster) -> None:
    kept.cluster.state.topics = TOPICS
    for message_id in ("A", "B", "C"):
        put_half(kept, message_id)


def ids(backend: Backend) -> list[str]:
    return [each.message.message_id for each in transactions.select(backend)]


def test_what_no_operation_names_is_open(kept: KeepingCluster, backend: Backend) -> None:
    with_operations(kept, b"1")
    assert ids(backend) == ["A", "C"]
    (first, _) = transactions.select(backend, group="payers", topic="orders")
    assert (first.queue.topic, first.queue.broker_name, first.checks) == ("orders", "broker-b", 2)
    assert transactions.select(backend, group="others") == []


def test_5_writes_several_offsets_into_an_operation_and_lets_it_be_pulled(
    kept: KeepingCluster, backend: Backend
) -> None:
    kept.cluster.state.topics = {**TOPICS, OPERATION_TOPIC: 1}
    kept.put(OPERATION_TOPIC, b"0,2,", broker="broker-b")
    assert ids(backend) == ["B"]


def test_of_a_half_message_that_was_stored_again_the_last_counts(kept: KeepingCluster, backend: Backend) -> None:
    put_half(kept, "A")
    with_operations(kept)
    (found,) = transactions.select(backend, message_id="A")
    assert found.message.queue_offset == 3


def test_a_message_that_stands_in_its_topic_is_not_open(kept: KeepingCluster, backend: Backend) -> None:
    with_operations(kept)
    kept.put("orders", b"A", broker="broker-b", UNIQ_KEY="A")
    assert ids(backend) == ["B", "C"]


def test_a_decision_goes_to_the_broker_of_the_half_message(kept: KeepingCluster, backend: Backend) -> None:
    with_operations(kept)
    (found,) = transactions.select(backend, message_id="B")
    kept.cluster.script[RequestCode.END_TRANSACTION] = response
    transactions.decide(backend, found, commit=False)
    (asked,) = kept.cluster.asked(RequestCode.END_TRANSACTION, "broker-b")
    fields = request_fields(asked)
    assert (fields["producerGroup"], fields["tranStateTableOffset"], fields["commitOrRollback"]) == ("payers", 1, 12)
    assert fields["commitLogOffset"] == found.message.commit_log_offset


def test_what_a_broker_gave_up_is_shown_and_not_decided(kept: KeepingCluster, backend: Backend) -> None:
    with_operations(kept, b"0", b"1", b"2")
    kept.cluster.state.topics = {**TOPICS, "TRANS_CHECK_MAX_TIME_TOPIC": 1}
    kept.put("TRANS_CHECK_MAX_TIME_TOPIC", b"D", UNIQ_KEY="D", REAL_TOPIC="orders", REAL_QID="0", PGROUP="payers")
    (found,) = transactions.select(backend)
    assert found.given_up
    with pytest.raises(NotOnCluster, match="send it again by hand"):
        transactions.decide(backend, found, commit=True)
