"""The whole way of a message over a cluster: sent, handled, failed once, handled again and committed."""

from __future__ import annotations

import threading

import pytest

from rmqclient import App, Message, Producer
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.errors import NotOnCluster
from rmqclient.message import ReceivedMessage
from tests.support.cluster.keeping_cluster import keeping_cluster

PATIENCE_S = 30


@pytest.mark.parametrize(("path", "prefix"), [("", ""), ("/tenant", "tenant%")], ids=["no namespace", "a namespace"])
def test_a_message_whose_handler_fails_once_is_handled_again_and_all_are_committed(path: str, prefix: str) -> None:
    with keeping_cluster(topics={f"{prefix}orders": 2}) as kept:
        url = f"rocketmq://{kept.cluster.address}{path}"
        app = App(url)
        handled: list[tuple[bytes, int]] = []
        everything = threading.Event()

        @app.handler("orders", group="shop")
        def handle(message: ReceivedMessage) -> None:
            handled.append((message.body, message.delivery_attempt))
            if len(handled) == 6:
                everything.set()
            if handled[-1] == (b"bad", 1):
                raise ValueError("not yet")

        with Producer(url) as producer:
            for body in (b"one", b"bad", b"two"):
                producer.send(Message("orders", body))
            producer.send_batch([Message("orders", b"three"), Message("orders", b"four")])

        consumer = PushConsumer(url, list(app.handlers))
        consumer.start()
        assert everything.wait(PATIENCE_S), handled
        consumer.stop_taking()
        assert consumer.drain(PATIENCE_S) == 0
        consumer.close()

        assert sorted(handled) == [(b"bad", 1), (b"bad", 2), (b"four", 1), (b"one", 1), (b"three", 1), (b"two", 1)]
        group, retries = f"{prefix}shop", f"%RETRY%{prefix}shop"
        assert kept.bodies(retries) == [b"bad"]
        assert sum(kept.committed(group, f"{prefix}orders").values()) == 5
        assert kept.committed(group, retries) == {("broker-a", 0): 1}


def test_durable_steps_are_refused_before_the_first_one_runs() -> None:
    with keeping_cluster(topics={"orders": 1}) as kept:
        url = f"rocketmq://{kept.cluster.address}"
        app, ran, refused = App(url), list[str](), threading.Event()

        @app.handler("orders", group="shop")
        def handle(message: ReceivedMessage) -> None:
            with pytest.raises(NotOnCluster, match=r"message\.steps"):
                message.steps("charge", lambda: ran.append("charge"))
            refused.set()

        with Producer(url) as producer:
            producer.send(Message("orders", b"one"))
            with pytest.raises(NotOnCluster, match=r"signal\(\)"):
                producer.signal("0A010203000018B4AAC21D6F3B5C0001", "approved", group="shop")
        consumer = PushConsumer(url, list(app.handlers))
        consumer.start()
        assert refused.wait(PATIENCE_S)
        consumer.stop_taking()
        assert consumer.drain(PATIENCE_S) == 0
        consumer.close()
        assert ran == []
