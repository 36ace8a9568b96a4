"""Our workers and RocketMQ's DefaultMQPushConsumer in one group: every message goes to one of them."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.consuming.push_consumer import PushConsumer
from tests.interop.cluster.behaviour.place import LONG_S, eventually
from tests.interop.cluster.clusters import Cluster

Where = tuple[str, int]


@dataclass(slots=True)
class JavaMember:
    """A Java consumer, and what it has printed."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    ready: threading.Event = field(default_factory=threading.Event)

    @property
    def bodies(self) -> list[str]:
        """The messages that it got."""
        return [line["body"] for line in self.lines]

    @property
    def queues(self) -> set[Where]:
        """The queues that it got messages from."""
        return {(line["broker"], line["queue_id"]) for line in self.lines}


@contextmanager
def java_member(cluster: Cluster, group: str, topic: str, way: str) -> Iterator[JavaMember]:
    """Run a Java consumer in a group until the block ends; it then leaves the group."""
    member = JavaMember()
    command = cluster.java.command("interop.Interop", "take", ";".join(cluster.addresses), group, topic, way, "")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:

        def read() -> None:
            for text in process.stdout or ():
                if text.startswith("{"):
                    line = orjson.loads(text)
                    member.ready.set() if line["kind"] == "ready" else None
                    member.lines.extend([line] if line["kind"] == "message" else [])

        reader = threading.Thread(target=read)
        reader.start()
        try:
            assert member.ready.wait(LONG_S), "the Java consumer did not start"
            yield member
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(LONG_S) == 0
        finally:
            process.kill()
            reader.join()


@pytest.mark.parametrize("kind", ["ordered", "plain"])
def test_ours_and_javas_share_a_group_without_overlap(kind: str, cluster: Cluster, name: Callable[[str], str]) -> None:
    topic, group, app, ours = name("Shared"), name(kind), App(cluster.url), list[ReceivedMessage]()

    @app.handler(topic, group=group, order="queue" if kind == "ordered" else None)
    def handle(message: ReceivedMessage) -> None:
        ours.append(message)

    def send(numbers: range) -> None:
        for number in numbers:
            producer.send(Message(topic, b"%d" % number))

    with Producer(cluster.url) as producer:
        queues = {(queue.broker_name, queue.queue_id) for queue in producer.create_topic(topic, 4)}
        consumer = PushConsumer(cluster.url, app.handlers)
        consumer.start()
        try:
            with java_member(cluster, group, topic, kind) as java:
                eventually(lambda: 0 < len(_held(consumer)) < len(queues), "the queues are divided")
                send(range(400))
                eventually(lambda: len(ours) + len(java.bodies) >= 400, "every message at one of them")
                held = _held(consumer)
                assert java.queues == queues - held
                assert {(message.queue.broker_name, message.queue_id) for message in ours} == held
            eventually(lambda: _held(consumer) == queues, "all queues, when the other has left")
            send(range(400, 600))
            eventually(lambda: len(ours) + len(java.bodies) >= 600, "every message here")
        finally:
            consumer.stop_taking()
            consumer.drain(LONG_S)
            consumer.close()
    counted = Counter([int(message.body) for message in ours] + [int(body) for body in java.bodies])
    assert counted == Counter(range(600))


def _held(consumer: PushConsumer) -> set[Where]:
    return {(queue.broker_name, queue.queue_id) for queues in consumer.queues.values() for queue in queues}
