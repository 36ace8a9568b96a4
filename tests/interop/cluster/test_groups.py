"""Groups on real brokers: members that share queues, leave, are killed, or are moved."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqclient import App, Message, MessageQueue, Producer, ReceivedMessage
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from tests.interop.cluster.behaviour.place import LONG_S, eventually
from tests.interop.cluster.clusters import Cluster
from tests.interop.cluster.workers import start_workers

Name = Callable[[str], str]

APPLICATION = """
import os
from rmqclient import App

app = App("nowhere")

@app.handler(os.environ["TOPIC"], group=os.environ["TOPIC"], order=os.environ.get("ORDER") or None, threads=4)
def note(message):
    if message.body == b"poison" and message.delivery_attempt < 3:
        os.kill(os.getpid(), 9)
    line = f"{message.queue.broker_name} {message.queue_id} {message.queue_offset} {message.delivery_attempt}\\n"
    with open(os.environ["SEEN"], "a") as file:
        file.write(line)
"""


@pytest.fixture(autouse=True)
def state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQ_STATE_DIR", str(tmp_path / "state"))


@contextmanager
def consuming(place: str, app: App) -> Iterator[PushConsumer]:
    """Run the handlers of an application in this process."""
    consumer = PushConsumer(place, app.handlers)
    consumer.start()
    try:
        yield consumer
    finally:
        consumer.stop_taking()
        assert consumer.drain(LONG_S) == 0
        consumer.close()


class Feed:
    """Sends numbered messages to a topic from a thread of its own, until :meth:`end`."""

    def __init__(self, place: str, topic: str) -> None:
        self.sent = 0
        self._ended = threading.Event()
        self._producer = Producer(place)
        self._topic = topic
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def end(self) -> int:
        """Stop, and return how many messages were sent."""
        self._ended.set()
        self._thread.join()
        self._producer.close()
        return self.sent

    def _send(self) -> None:
        while not self._ended.wait(0.002):
            self._producer.send(Message(self._topic, b"%d" % self.sent))
            self.sent += 1


def noting(topic: str, seen: list[tuple[str, int]]) -> App:
    """Return an application that notes where each message stands."""
    app = App("nowhere")

    @app.handler(topic, group=topic, threads=2)
    def note(message: ReceivedMessage) -> None:
        seen.append((str(message.queue), message.queue_offset))

    return app


def made(place: str, topic: str, queue_count: int = 4) -> str:
    with Producer(place) as producer:
        producer.create_topic(topic, queue_count)
    return topic


def held(consumer: PushConsumer) -> int:
    return sum(len(queues) for queues in consumer.queues.values())


def test_members_share_the_queues_and_repeat_nothing_when_one_leaves(cluster: Cluster, name: Name) -> None:
    topic, seen = made(cluster.url, name("Shared")), list[tuple[str, int]]()
    feed = Feed(cluster.url, topic)
    with consuming(cluster.url, noting(topic, seen)) as first:
        with consuming(cluster.url, noting(topic, seen)) as second:
            eventually(lambda: (held(first), held(second)) == (4, 4), "half of the queues each")
            before = len(seen)
            eventually(lambda: len(seen) > before + 100, "more messages")
        eventually(lambda: held(first) == 8, "all queues again")
        sent = feed.end()
        eventually(lambda: len(seen) >= sent, "every message")
    assert len(seen) == len(set(seen)) == sent


def test_a_member_that_joins_takes_only_the_queues_that_it_must(cluster: Cluster, name: Name) -> None:
    topic, app = made(cluster.url, name("Sticky")), App("nowhere")

    @app.handler(topic, group=name("sticky"), allocation="sticky")
    def note(message: ReceivedMessage) -> None:
        """Do nothing."""

    def queues(consumer: PushConsumer) -> set[MessageQueue]:
        return {queue for held_here in consumer.queues.values() for queue in held_here}

    with consuming(cluster.url, app) as first, consuming(cluster.url, app) as second:
        eventually(lambda: (held(first), held(second)) == (4, 4), "half of the queues each")
        before = queues(first), queues(second)
        with consuming(cluster.url, app) as third:
            eventually(lambda: sorted(map(held, (first, second, third))) == [2, 3, 3], "a share of the third")
            assert queues(first) < before[0] or queues(second) < before[1]
            assert queues(first) <= before[0]
            assert queues(second) <= before[1]


@pytest.mark.parametrize("order", ["", "queue", "key"])
def test_a_worker_that_is_killed_loses_nothing(cluster: Cluster, name: Name, tmp_path: Path, order: str) -> None:
    topic, seen = made(cluster.url, name("Killed")), tmp_path / "seen"
    (tmp_path / "shop.py").write_text(APPLICATION)
    environment = {"TOPIC": topic, "SEEN": str(seen), "ORDER": order}
    workers = start_workers(
        tmp_path / "shop.py", cluster.url, tmp_path / "log", "--processes", "2", environment=environment
    )
    try:
        pids = workers.ready(2)
        feed = Feed(cluster.url, topic)
        eventually(lambda: seen.exists() and len(seen.read_text().splitlines()) > 200, "messages")
        subprocess.run(["kill", f"-{signal.SIGKILL.value}", str(pids[1])], check=True)
        workers.ready(3)
        sent = feed.end()
        eventually(lambda: len({line.rpartition(" ")[0] for line in seen.read_text().splitlines()}) == sent, "all")
        assert workers.stop() == 0
    finally:
        workers.kill()
    first_seen: dict[tuple[str, str], list[int]] = {}
    for broker, queue_id, offset, _ in map(str.split, seen.read_text().splitlines()):
        offsets = first_seen.setdefault((broker, queue_id), [])
        if int(offset) not in offsets:
            offsets.append(int(offset))
    assert order != "queue" or all(offsets == sorted(offsets) for offsets in first_seen.values())


def test_attempts_that_kill_the_worker_are_counted(cluster: Cluster, name: Name, tmp_path: Path) -> None:
    topic, seen = made(cluster.url, name("Poison"), 1), tmp_path / "seen"
    (tmp_path / "shop.py").write_text(APPLICATION)
    with Producer(cluster.url) as producer:
        producer.send(Message(topic, b"poison"))
    environment = {"TOPIC": topic, "SEEN": str(seen), "ORDER": "queue"}
    workers = start_workers(
        tmp_path / "shop.py", cluster.url, tmp_path / "log", "--processes", "1", environment=environment
    )
    try:
        eventually(seen.exists, "the third attempt")
        assert seen.read_text().split()[3] == "3"
        assert workers.stop() == 0
    finally:
        workers.kill()


def test_a_group_is_moved_while_its_members_run(cluster: Cluster, name: Name) -> None:
    topic, seen = made(cluster.url, name("Moved")), list[tuple[str, int]]()
    with consuming(cluster.url, noting(topic, seen)):
        with Producer(cluster.url) as producer:
            for number in range(40):
                producer.send(Message(topic, b"%d" % number))
        eventually(lambda: len(set(seen)) == 40, "every message")
        seen.clear()
        with Admin(cluster.url) as admin:
            admin.seek(topic, topic, "earliest")
        eventually(lambda: len(set(seen)) == 40, "every message again")
