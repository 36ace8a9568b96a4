"""Copies of failed messages: what a broker is told of a retry and of a dead letter."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rmqclient import RetryPolicy
from rmqclient.backend import Backend
from rmqclient.backend.protocols import ProducerSettings
from rmqclient.errors import PropertiesTooLarge
from rmqclient.failures.failure import Failure, history
from rmqclient.failures.retry import Outcome, Retries
from rmqclient.message import MessageQueue, ReceivedMessage
from rmqclient.opening import open_backend
from rmqclient.remoting.table import request_fields
from rmqclient.store import clock
from rmqclient.store.wire import decode_records
from tests.cluster.sending.conftest import SEND, TWO, broker_of, properties_of
from tests.support.cluster.scripted_cluster import ScriptedCluster, scripted_cluster
from tests.support.oracle.reference import ReferenceRecord, encode, format_properties

OLD, NEW = 407, 479


@contextmanager
def opened(options: str = "", **cluster: Any) -> Iterator[tuple[ScriptedCluster, Backend]]:
    with scripted_cluster(**cluster) as servers:
        backend = open_backend(f"rocketmq://{servers.address}{options}")
        try:
            yield servers, backend
        finally:
            backend.close()


def received(**changed: Any) -> ReceivedMessage:
    properties = {"UNIQ_KEY": "A" * 32, "TAGS": "paid", "KEYS": "k1", "CLUSTER": "DefaultCluster"}
    fields: dict[str, Any] = {"topic": "orders", "body": b"body", "flag": 7, "born_timestamp": 1_000} | changed
    record = ReferenceRecord(**({"properties": format_properties(properties)} | fields))
    (message,) = decode_records(encode(record), MessageQueue("orders", 0, "broker-a"))
    return message


def failed(attempt: int = 1) -> Failure:
    return Failure.raised(KeyError("broken"), attempt, "me@1")


def test_a_retry_is_sent_to_the_retry_topic_with_the_history_of_its_failures() -> None:
    with opened() as (cluster, backend):
        message = received()
        outcome = Retries(backend, "shop", RetryPolicy(), "me@1").send_back(message, failed())
        (asked,) = cluster.asked(SEND)
    fields, properties = request_fields(asked), properties_of(asked)
    assert outcome is Outcome.RETRY
    assert (fields["topic"], fields["reconsumeTimes"], fields["maxReconsumeTimes"]) == ("%RETRY%shop", 1, 2**31 - 1)
    assert (fields["bornTimestamp"], fields["flag"], asked.body) == (1_000, 7, b"body")
    assert (properties["UNIQ_KEY"], properties["TAGS"], properties["KEYS"]) == ("A" * 32, "paid", "k1")
    assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("orders", message.offset_message_id)
    assert properties["DELAY"] == "3"
    assert [entry["error"] for entry in history(properties)] == ["KeyError"]


def test_a_retry_topic_that_does_not_exist_yet_has_one_queue_on_each_broker() -> None:
    with opened(topics={}, brokers=("broker-a", "broker-b")) as (cluster, backend):
        retries = Retries(backend, "shop", RetryPolicy(), "me@1")
        for _ in range(4):
            retries.send_back(received(), failed())
        places = sorted(
            (request_fields(asked)["bname"], request_fields(asked)["queueId"]) for asked in cluster.asked(SEND)
        )
    assert places == [("broker-a", 0), ("broker-a", 0), ("broker-b", 0), ("broker-b", 0)]


def test_a_dead_letter_is_what_the_broker_makes_of_a_retry_without_attempts_left() -> None:
    with opened() as (cluster, backend):
        outcome = Retries(backend, "shop", RetryPolicy(max_retries=2), "me@1").send_back(received(), failed(3))
        (asked,) = cluster.asked(SEND)
    fields, properties = request_fields(asked), properties_of(asked)
    assert outcome is Outcome.DEAD_LETTER
    assert (fields["topic"], fields["reconsumeTimes"], fields["maxReconsumeTimes"]) == ("%RETRY%shop", 3, 0)
    assert (properties["DLQ_ORIGIN_TOPIC"], properties["RETRY_TOPIC"]) == ("orders", "orders")
    assert "DELAY" not in properties


def test_brokers_with_a_timer_keep_the_delay_of_the_policy() -> None:
    with opened(version=NEW) as (cluster, backend):
        Retries(backend, "shop", RetryPolicy(delays=(7.5,)), "me@1").send_back(received(), failed())
        (asked,) = cluster.asked(SEND)
    properties = properties_of(asked)
    assert abs(int(properties["TIMER_DELIVER_MS"]) - (time.time() + 7.5) * 1000) < 5_000
    assert "DELAY" not in properties


@pytest.mark.parametrize(
    ("delay_s", "level"), [(0.2, "1"), (1, "1"), (2, "2"), (31, "5"), (7_000, "18"), (86_400, "18")]
)
def test_brokers_without_a_timer_get_the_next_longer_level(delay_s: float, level: str) -> None:
    with opened(version=OLD) as (cluster, backend):
        Retries(backend, "shop", RetryPolicy(delays=(delay_s,)), "me@1").send_back(received(), failed())
        (asked,) = cluster.asked(SEND)
    assert properties_of(asked)["DELAY"] == level


def test_a_delay_of_a_level_is_that_level_also_when_the_broker_is_known_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with opened(version=OLD) as (cluster, backend):
        retries = Retries(backend, "shop", RetryPolicy(delays=(1,)), "me@1")
        retries.send_back(received(), failed())
        monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_300_000)
        monkeypatch.setattr(clock, "wall_ns", time.time_ns)
        retries.send_back(received(), failed())
        asked = cluster.asked(SEND)
    assert [properties_of(each)["DELAY"] for each in asked] == ["1", "1"]


def test_no_delay_is_no_delay() -> None:
    with opened() as (cluster, backend):
        Retries(backend, "shop", RetryPolicy(delays=(0,)), "me@1").send_back(received(), failed())
        (asked,) = cluster.asked(SEND)
    assert not {"DELAY", "TIMER_DELIVER_MS"} & properties_of(asked).keys()


def test_a_compressed_body_stays_as_it_is() -> None:
    with opened() as (cluster, backend):
        message = received(sys_flag=0x301 | 0x8, body=b"packed")
        Retries(backend, "shop", RetryPolicy(), "me@1").send_back(message, failed())
        (asked,) = cluster.asked(SEND)
    assert (request_fields(asked)["sysFlag"], asked.body) == (0x301, b"packed")


def test_the_retry_topic_is_in_the_namespace() -> None:
    with opened("/bank") as (cluster, backend):
        Retries(backend, "shop", RetryPolicy(), "me@1").send_back(received(), failed())
        (asked,) = cluster.asked(SEND)
    assert request_fields(asked)["topic"] == "%RETRY%bank%shop"


def test_properties_that_are_too_long_are_refused_here() -> None:
    with opened() as (cluster, backend):
        sender = backend.producers.sender(ProducerSettings(lambda _: []))
        with pytest.raises(PropertiesTooLarge, match="40,0"):
            sender.append_copy(received(), MessageQueue("%RETRY%shop", 0), {"long": "x" * 40_000}, reconsume_times=1)
        assert not cluster.asked(SEND)


def test_a_copy_for_a_queue_of_a_broker_goes_there_and_another_one_to_the_queues_in_turn() -> None:
    with opened(brokers=TWO) as (cluster, backend):
        sender = backend.producers.sender(ProducerSettings(lambda _: []))
        for queue in (MessageQueue("orders", 2, "broker-b"), MessageQueue("orders", 0)):
            for _ in range(3):
                sender.append_copy(received(), queue, {}, reconsume_times=0)
        asked = cluster.asked(SEND)
    places = [(broker_of(each), request_fields(each)["queueId"]) for each in asked]
    assert places[:3] == [("broker-b", 2)] * 3
    assert len(set(places[3:])) == 3
