"""Trying again: which failures are tried again, where, and what is said of a message that may be stored."""

from __future__ import annotations

from collections import Counter

import pytest

from rmqclient import Message
from rmqclient.cluster.sending.queue_choice import Avoidance
from rmqclient.errors import BrokerUnreachable, ConnectionLost, QueueError, RequestTimedOut, SystemBusy
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import ResponseCode, request_fields
from tests.cluster.sending.conftest import (
    SEND,
    TWO,
    broker_of,
    in_turn,
    no,
    nothing,
    only_on,
    producing,
    properties_of,
    stored,
)

REFUSALS = [17, 14, 1, 16, 204, 205, 2]
SHORT = "timeout=1"


@pytest.mark.parametrize("code", REFUSALS)
def test_what_one_broker_refuses_for_now_another_one_gets(code: int) -> None:
    with producing({SEND: only_on("broker-a", no(code))}, brokers=TWO) as (cluster, producer):
        results = [producer.send(Message("orders", b"")) for _ in range(4)]
        assert {result.queue.broker_name for result in results} == {"broker-b"}
        tries = Counter(broker_of(asked) for asked in cluster.asked(SEND))
    assert tries["broker-a"] >= 1
    assert tries["broker-b"] == 4


def test_with_one_broker_the_next_queue_is_tried_three_times_in_all() -> None:
    with producing({SEND: no(ResponseCode.SYSTEM_BUSY, "page cache")}) as (cluster, producer):
        with pytest.raises(SystemBusy, match="page cache") as told:
            producer.send(Message("orders", b""))
        queues = [request_fields(asked)["queueId"] for asked in cluster.asked(SEND)]
    assert queues == [0, 1, 2]
    assert not told.value.stored
    assert told.value.retryable


def test_a_broker_that_is_gone_is_passed_over() -> None:
    with producing(brokers=TWO) as (cluster, producer):
        producer.send(Message("orders", b""))
        cluster.stop("broker-b")
        results = [producer.send(Message("orders", b"")) for _ in range(8)]
    assert {result.queue.broker_name for result in results} == {"broker-a"}


def test_when_no_broker_can_be_reached_nothing_is_stored() -> None:
    with producing(brokers=("names", "broker-a")) as (cluster, producer):
        cluster.script[SEND] = stored
        cluster.state.brokers = {"broker-a": cluster.brokers["broker-a"]}
        cluster.stop("broker-a")
        with pytest.raises(BrokerUnreachable) as told:
            producer.send(Message("orders", b""))
    assert not told.value.stored


def test_an_answer_that_does_not_come_is_waited_for_on_another_broker_under_the_same_id() -> None:
    with producing({SEND: only_on("broker-a", nothing)}, brokers=TWO, options=SHORT) as (cluster, producer):
        result = producer.send(Message("orders", b""))
        tries = cluster.asked(SEND)
    assert result.queue.broker_name == "broker-b"
    assert [broker_of(asked) for asked in tries] == list(TWO)
    assert {properties_of(asked)["UNIQ_KEY"] for asked in tries} == {result.message_id}


def test_a_message_without_an_answer_may_be_stored_and_the_error_says_so() -> None:
    with producing({SEND: nothing}, options=SHORT) as (cluster, producer):
        with pytest.raises(RequestTimedOut) as told:
            producer.send(Message("orders", b""))
        assert len(cluster.asked(SEND)) == 3
    assert told.value.stored


def test_a_later_refusal_does_not_hide_that_a_message_may_be_stored() -> None:
    script = {SEND: in_turn(nothing, no(2), no(2))}
    with producing(script, options=SHORT) as (_, producer), pytest.raises(QueueError) as told:
        producer.send(Message("orders", b""))
    assert told.value.stored
    assert isinstance(told.value, RequestTimedOut)
    assert "SYSTEM_BUSY" in "".join(told.value.__notes__)


def test_a_connection_that_is_lost_before_the_answer_leaves_the_message_in_doubt() -> None:
    with producing(brokers=TWO) as (cluster, producer):

        def hang_up(asked: Frame) -> Frame | None:
            if broker_of(asked) == "broker-a":
                cluster.hang_up("broker-a")
                return None
            return stored(asked)

        cluster.script[SEND] = hang_up
        assert producer.send(Message("orders", b"")).queue.broker_name == "broker-b"


# --- with a sharding key ------------------------------------------------------------------------------


def test_a_sharding_key_is_tried_again_in_its_queue() -> None:
    with producing({SEND: in_turn(no(2), no(14))}, brokers=TWO) as (cluster, producer):
        result = producer.send(Message("orders", b""), "key")
        places = {(broker_of(asked), request_fields(asked)["queueId"]) for asked in cluster.asked(SEND)}
    assert places == {(result.queue.broker_name, result.queue.queue_id)}


def test_a_message_with_a_sharding_key_that_may_be_stored_is_not_sent_again() -> None:
    with producing({SEND: nothing}, brokers=TWO, options=SHORT) as (cluster, producer):
        with pytest.raises(RequestTimedOut) as told:
            producer.send(Message("orders", b""), "key")
        assert len(cluster.asked(SEND)) == 1
    assert told.value.stored


def test_a_lost_connection_with_a_sharding_key_is_told() -> None:
    with producing() as (cluster, producer):
        cluster.script[SEND] = lambda _: cluster.hang_up()
        with pytest.raises(ConnectionLost) as told:
            producer.send(Message("orders", b""), "key")
    assert told.value.stored


# --- avoidance ----------------------------------------------------------------------------------------


def test_a_broker_that_failed_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Avoidance, "took", lambda *_: None)  # a busy machine does not make the other one slow
    with producing({SEND: only_on("broker-a", no(2))}, brokers=TWO) as (cluster, producer):
        for _ in range(20):
            producer.send(Message("orders", b""))
        tries = Counter(broker_of(asked) for asked in cluster.asked(SEND))
    assert tries == {"broker-a": 1, "broker-b": 20}


def test_brokers_that_all_failed_are_all_used() -> None:
    with producing({SEND: in_turn(no(2), no(2))}, brokers=TWO) as (cluster, producer):
        for _ in range(8):
            producer.send(Message("orders", b""))
        assert len(cluster.asked(SEND)) == 10


@pytest.mark.parametrize(
    ("seconds", "avoided_for_s"), [(0.5, 0), (0.55, 30), (1.2, 60), (2.5, 120), (3, 180), (14.9, 180), (15, 600)]
)
def test_the_longer_an_answer_took_the_longer_a_broker_is_avoided(seconds: float, avoided_for_s: float) -> None:
    now = [1_000.0]
    avoided = Avoidance(lambda: now[0])
    avoided.took("broker-a", seconds)
    now[0] += avoided_for_s - 1
    assert ("broker-a" in avoided) == (avoided_for_s > 0)
    now[0] += 1
    assert "broker-a" not in avoided


def test_a_quick_answer_ends_the_avoidance() -> None:
    avoided = Avoidance()
    avoided.failed("broker-a")
    assert "broker-a" in avoided
    avoided.took("broker-a", 0.001)
    assert "broker-a" not in avoided
