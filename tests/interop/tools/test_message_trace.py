"""RocketMQ's own reader of the message trace, ``mqadmin queryMsgTraceById``, reads what this library writes."""

from __future__ import annotations

import functools
import threading
from pathlib import Path

import pytest

from rmqclient import App, ConsumerConfig, Message, Producer, RetryPolicy, SendResult, TransactionProducer
from rmqclient.admin.life import life_of
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.message import ReceivedMessage
from rmqclient.opening import open_backend
from rmqclient.testing import serve
from tests.interop.cluster.clusters import started_cluster
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, why_not
from tests.interop.serve.members import eventually
from tests.interop.tools.tools import Tools

RELEASES = (BROKER_4_9_7, BROKER_5_3_3)
LONG_S = 60.0

pytestmark = pytest.mark.skipif(bool(reason := why_not(*RELEASES)), reason=reason)


@pytest.fixture(autouse=True)
def state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQ_STATE_DIR", str(tmp_path / "state"))


@pytest.mark.parametrize("release", RELEASES)
def test_mqadmin_shows_the_trace_of_a_message_on_our_server(release: str, tmp_path: Path) -> None:
    with serve(tmp_path / "store") as server:
        # Given a message of the directory, and one of a client of the server, both handled at the second attempt
        local, remote = traced(str(server.root), "local"), traced(server.url, "remote")
        half = decided(str(server.root))
        # Then RocketMQ's reader tells both, and reads on behind the record of a decision, which it does not show
        with Tools(release, tmp_path / "tools", server.address) as tools:
            for sent in (local, remote):
                eventually(functools.partial(is_told, tools, sent), f"the trace of {sent}", LONG_S)
            eventually(lambda: pubs_of(shown(tools, half)) == 1, "the half message", LONG_S)


def test_mqadmin_shows_the_trace_of_a_message_on_a_real_broker(tmp_path: Path) -> None:
    with started_cluster(BROKER_4_9_7, tmp_path / "cluster", name_servers=1, masters=1) as cluster:
        sent = traced(f"rocketmq://{cluster.addresses[0]}", "orders")
        with Tools(BROKER_4_9_7, tmp_path / "tools", cluster.addresses[0]) as tools:
            eventually(lambda: is_told(tools, sent), "the trace", LONG_S)

        backend = open_backend(f"rocketmq://{cluster.addresses[0]}")
        message = backend.messages.by_id(sent.message_id, "orders")
        assert message is not None
        told = [step.event for step in life_of(backend, message)]
        assert [event for event in told if event in {"sent", "handled", "not handled"}] == [
            "sent", "not handled", "handled"
        ]  # fmt: skip
        backend.close()


def traced(place: str, topic: str) -> SendResult:
    """Send a message that is handled at the second attempt, with both sides traced."""
    app, handled = App(place), threading.Event()

    @app.handler(topic, group=f"{topic}-billing", retry=RetryPolicy(delay_levels=(1,)))
    def bill(message: ReceivedMessage) -> None:
        if message.delivery_attempt == 1:
            raise ValueError("not yet")
        handled.set()

    with Producer(place, group="shop", message_trace=True) as producer:
        sent = producer.send(Message(topic, b"x", tags="paid", keys=[f"A-{topic}"]))
    consumer = PushConsumer(place, app.handlers, config=ConsumerConfig(message_trace=True))
    consumer.start()
    assert handled.wait(LONG_S)
    consumer.stop_taking()
    consumer.drain(LONG_S)
    consumer.close()
    return sent


def decided(place: str) -> str:
    """Commit a traced transaction; return the message's id."""
    with TransactionProducer(place, group="shop", message_trace=True) as producer:
        transaction = producer.transaction(Message("local", b"x"))
        transaction.commit()
    return transaction.message_id


def is_told(tools: Tools, sent: SendResult) -> bool:
    """Tell whether the command shows the send, the attempt that failed and the one that did not."""
    lines = shown(tools, sent.message_id).splitlines()
    calls = [line.split() for line in lines if line.startswith("Sub")]
    return pubs_of("\n".join(lines)) == 1 and sorted(line[-1] for line in calls) == ["failed", "success"]


def pubs_of(text: str) -> int:
    """Return how many sends it tells that went well."""
    return sum(line.startswith("Pub") and "success" in line for line in text.splitlines())


def shown(tools: Tools, message_id: str) -> str:
    """Return what ``mqadmin queryMsgTraceById`` prints."""
    return tools.run("queryMsgTraceById", "-i", message_id)
