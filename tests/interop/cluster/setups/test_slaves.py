"""Slaves: a consumer asks the one that its master suggests, and goes on with it when the master is away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.net.connection import Done
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request, response_fields
from tests.interop.cluster.behaviour.place import LONG_S, eventually
from tests.interop.cluster.clusters import Cluster, Node, started_cluster
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3

MESSAGES = 1_500
SLAVE_S = 180.0
"""A slave asks for topics each ten seconds, and beside other tests it starts slowly."""
"""More than a process queue holds: the last ones are not asked for while the handler waits."""
ALL_IS_ON_DISK = "accessMessageInMemoryMaxRatio=0"
"""A master with this setting takes every message for one that it has to read from its disk, and suggests its slave."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were asked for messages of the topic, in their order."""
    submit, found = ClusterClient.submit, list[str]()

    def noted(client: ClusterClient, address: str, request: Frame, done: Done, timeout_s: float | None = None) -> None:
        if request.code == RequestCode.PULL_MESSAGE:
            found.append(address)
        submit(client, address, request, done, timeout_s)

    monkeypatch.setattr(ClusterClient, "submit", noted)
    return found


@pytest.fixture(params=[BROKER_4_9_7, BROKER_5_3_3])
def pair(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A master with a slave."""
    monkeypatch.setenv("RMQ_STATE_DIR", str(tmp_path / "state"))
    with started_cluster(request.param, tmp_path / "pair", masters=1, slaves=1, settings=ALL_IS_ON_DISK) as cluster:
        yield cluster


def is_ready(cluster: Cluster, slave: Node) -> bool:
    """Whether a slave has every message, and knows their topic, of which it asks its master each ten seconds."""
    client = ClusterClient(ClusterURL.parse(cluster.url))
    try:
        last = client.call(slave.address, request(RequestCode.GET_MAX_OFFSET, topic="Orders", queueId=0))
        topics = client.call(slave.address, request(RequestCode.GET_ALL_TOPIC_CONFIG)).body
        return response_fields(RequestCode.GET_MAX_OFFSET, last)["offset"] == MESSAGES and b'"Orders"' in topics
    finally:
        client.close()


def test_a_slave_that_the_master_suggests_is_asked_also_when_the_master_is_away(
    pair: Cluster, asked: list[str]
) -> None:
    master, slave = pair.broker("broker-a"), pair.broker("broker-a", 1)
    app, seen, go_on = App("nowhere"), list[int](), threading.Event()

    @app.handler("Orders", group="orders")
    def note(message: ReceivedMessage) -> None:
        seen.append(int(message.body))
        if len(seen) == MESSAGES // 2:
            assert go_on.wait(LONG_S)

    with Producer(pair.url) as producer:
        producer.create_topic("Orders", 1)
        for number in range(MESSAGES):
            producer.send(Message("Orders", b"%d" % number))
    eventually(lambda: is_ready(pair, slave), "the slave's copy", SLAVE_S)
    consumer = PushConsumer(pair.url, app.handlers)
    consumer.start()
    try:
        # Given a consumer in the middle of what is there
        eventually(lambda: len(seen) == MESSAGES // 2, "half of the messages")
        assert slave.address in asked
        assert master.address in asked
        # When the master dies
        master.server.kill()
        before = len(asked)
        go_on.set()
        # Then the rest comes from the slave
        eventually(lambda: len(seen) == MESSAGES, "the other half")
        assert seen == list(range(MESSAGES))
        assert slave.address in asked[before:]
    finally:
        go_on.set()
        consumer.stop_taking()
        consumer.drain(LONG_S)
        consumer.close()
