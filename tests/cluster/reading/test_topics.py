"""Topics: listing, making, and reading dead letters that 4.9 lets nobody read."""

from __future__ import annotations

import logging

import orjson
import pytest
from click.testing import CliRunner

from rmqclient.backend import Backend
from rmqclient.errors import ConfigMismatch, NotOnCluster
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields, response
from rmqclient.workers.cli import rmq
from tests.cluster.reading.conftest import answering, runtime
from tests.support.cluster.keeping_cluster import KeepingCluster
from tests.support.cluster.standard_answers import route_of


def making(kept: KeepingCluster) -> None:
    """Let brokers make topics."""
    topics = dict(kept.cluster.state.topics or {})
    kept.cluster.state.topics = topics

    def make(asked: Frame) -> Frame:
        fields = request_fields(asked)
        topics[fields["topic"]] = fields["writeQueueNums"]
        return response(asked)

    kept.cluster.script[RequestCode.UPDATE_AND_CREATE_TOPIC] = make


def test_topics_of_the_brokers_themselves_are_not_listed(kept: KeepingCluster, backend: Backend) -> None:
    names = ["orders", "broker-a", "DefaultCluster", "DefaultCluster_REPLY_TOPIC", "%RETRY%g"]
    kept.cluster.script[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = answering({"topicList": names})
    assert backend.topics.names() == ["%RETRY%g", "orders"]


def test_a_topic_is_made_on_every_master(kept: KeepingCluster, backend: Backend) -> None:
    making(kept)
    assert len(backend.topics.create("bills", 3)) == 6
    for broker in kept.cluster.brokers:
        (asked,) = kept.cluster.asked(RequestCode.UPDATE_AND_CREATE_TOPIC, broker)
        fields = request_fields(asked)
        wanted = [fields[each] for each in ("topic", "readQueueNums", "writeQueueNums", "perm")]
        assert wanted == ["bills", 3, 3, 6]
    assert len(backend.topics.create("bills", 8)) == 6, "it has its queues already"


def test_the_command_counts_the_queues_of_each_master(kept: KeepingCluster, url: str) -> None:
    making(kept)
    made = CliRunner().invoke(rmq, ["topic", "create", "bills", "--queues", "3", "--store", url])
    assert (made.exit_code, made.stderr) == (0, "")
    again = CliRunner().invoke(rmq, ["topic", "create", "bills", "--queues", "6", "--store", url])
    assert (again.exit_code, "bills was there, with 3 queues: broker-a keeps it" in again.stderr) == (1, True)


def test_a_compact_topic_needs_brokers_of_5(kept: KeepingCluster, backend: Backend) -> None:
    making(kept)
    with pytest.raises(NotOnCluster, match="broker 'broker-a' is older"):
        backend.topics.create("prices", 1, "compact")
    assert kept.cluster.asked(RequestCode.UPDATE_AND_CREATE_TOPIC) == []
    kept.cluster.script[RequestCode.GET_BROKER_RUNTIME_INFO] = runtime(brokerVersion=479)
    backend.topics.create("prices", 1, "compact")
    made = kept.cluster.asked(RequestCode.UPDATE_AND_CREATE_TOPIC)
    assert {request_fields(asked)["attributes"] for asked in made} == {"+cleanup.policy=COMPACTION"}


def test_a_broker_that_has_counted_nothing_yet_tells_its_version_all_the_same(
    kept: KeepingCluster, backend: Backend
) -> None:
    making(kept)

    def young(asked: Frame) -> Frame:
        answer = response(asked, ResponseCode.SYSTEM_ERROR, remark="java.util.NoSuchElementException")
        answer.version = 479
        return answer

    kept.cluster.script[RequestCode.GET_BROKER_RUNTIME_INFO] = young
    backend.topics.create("prices", 1, "compact")
    assert len(kept.cluster.asked(RequestCode.UPDATE_AND_CREATE_TOPIC)) == 2


def test_the_policy_of_a_topic_is_its_attribute(kept: KeepingCluster, backend: Backend) -> None:
    assert backend.topics.cleanup_policy("orders") == "delete", "a 4.9 broker does not know the question"
    config = {"attributes": {"cleanup.policy": "COMPACTION"}}
    kept.cluster.script[RequestCode.GET_TOPIC_CONFIG] = answering(config)
    assert backend.topics.cleanup_policy("orders") == "compact"
    with pytest.raises(ConfigMismatch, match="cannot become 'delete'"):
        backend.topics.create("orders", 1, "delete")


def test_a_dead_letter_topic_that_can_only_be_written_is_made_readable(
    kept: KeepingCluster, backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    perm = {"now": 2}

    def route(asked: Frame) -> Frame:
        body = route_of(kept.cluster.state, 1)
        for queue in body["queueDatas"]:
            queue["perm"] = perm["now"]
        return response(asked, body=orjson.dumps(body))

    def make(asked: Frame) -> Frame:
        perm["now"] = request_fields(asked)["perm"]
        return response(asked)

    kept.cluster.script[RequestCode.GET_ROUTEINFO_BY_TOPIC] = route
    kept.cluster.script[RequestCode.UPDATE_AND_CREATE_TOPIC] = make
    with caplog.at_level(logging.WARNING):
        assert len(backend.topics.queues("%DLQ%billing")) == 2
    assert perm["now"] == 6
    assert "it is made readable, too" in caplog.text


def test_a_broker_that_refuses_to_make_a_topic_is_quoted(kept: KeepingCluster, backend: Backend) -> None:
    kept.cluster.script[RequestCode.UPDATE_AND_CREATE_TOPIC] = lambda asked: response(
        asked, ResponseCode.NO_PERMISSION, remark="no admin"
    )
    with pytest.raises(Exception, match="16 NO_PERMISSION: no admin"):
        backend.topics.create("bills", 1)
