"""Bodies that one side compressed, opened by the other."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmqclient import Compression, Message, Producer, PullConsumer, ReceivedMessage
from tests.interop.our_store import CONFIG
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, Java, broker, conf_of
from tests.support.lines import Line, of_kind

TOPIC = "compressed"


def body(sender: str, compression: Compression) -> bytes:
    return f"by {sender} with {compression.name} ".encode() * 400


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What a push consumer of RocketMQ got of ours, and what is in the store at the end."""

    consumed: list[Line]
    found: list[ReceivedMessage]


@pytest.fixture(scope="module", params=[BROKER_4_9_7, BROKER_5_3_3])
def exchanged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, report: list[str]) -> Exchanged:
    scratch = tmp_path_factory.mktemp("compressed")
    root = scratch / "store"
    _send(root)
    with broker(Java(request.param, scratch / "home"), conf_of(root)) as running:
        consumed = of_kind(running.run("consume", "readers", 3, TOPIC), "message")
        running.run("send-compressed", TOPIC, *(compression.name for compression in Compression))
        running.stop()
    found: list[ReceivedMessage] = []
    with PullConsumer(root, group="readers") as consumer:
        for queue in consumer.queues(TOPIC):
            found += consumer.pull(queue, 0).messages
    report.append(f"compressed bodies and {request.param}: {len(consumed)} opened there, {len(found)} here")
    return Exchanged(consumed, found)


def _send(root: Path) -> None:
    with Producer(root, config=CONFIG) as producer:
        producer.create_topic(TOPIC, 1)
    for compression in Compression:
        with Producer(root, compression=compression) as producer:
            producer.send(Message(TOPIC, body("rmqclient", compression)))


@pytest.mark.guarantee("G38")
def test_rocketmqs_consumer_opens_what_was_compressed_here(exchanged: Exchanged) -> None:
    got = [b64decode(line["body"]) for line in exchanged.consumed]
    assert sorted(got) == sorted(body("rmqclient", compression) for compression in Compression)


@pytest.mark.guarantee("G38")
def test_what_rocketmqs_producer_compressed_is_opened_here(exchanged: Exchanged) -> None:
    theirs = [message for message in exchanged.found if message.tags is not None]
    assert {message.tags for message in theirs} == {compression.name for compression in Compression}
    for message in theirs:
        compression = Compression[message.tags or ""]
        assert message.sys_flag & 0x701 == compression.value
        assert len(message.stored_body) < 1_000
        assert message.body == body("RocketMQ", compression)
    assert len(exchanged.found) == 6
