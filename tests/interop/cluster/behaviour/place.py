"""Place: where an application's messages are, a directory or the URL of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rmqclient import App, ConsumerConfig, Message, Producer, PullConsumer, ReceivedMessage, SendResult
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.errors import UnknownTopic
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3

STORE = "store"
SERVE = "serve"
"""``rmq serve`` over a directory, by its URL."""
CLUSTERS = (BROKER_4_9_7, BROKER_5_3_3)
LONG_S = 45.0
"""More than anything here takes; only a test that fails waits that long."""

QUICK = ConsumerConfig(suspend_ms=100)


@dataclass(frozen=True, slots=True)
class Place:
    """A directory or a cluster, with names for topics and groups that no other test has."""

    kind: str
    """``store``, ``serve``, or the release of the brokers."""
    address: str
    """What an application is given: the path of a directory, or a URL."""
    mark: str
    """Part of every name of this test."""
    differences: list[str]

    def name(self, stem: str) -> str:
        """Return a name for a topic, a group or a key, always the same within a test."""
        return f"{stem}-{self.mark}"

    def differs(self, *kinds: str, because: str) -> bool:
        """Tell whether this place is one of ``kinds``, which behave in another way for this reason."""
        if self.kind in kinds and (line := f"differs on {self.kind}: {because}") not in self.differences:
            self.differences.append(line)
        return self.kind in kinds

    def topic(self, stem: str, queue_count: int = 4) -> str:
        """Make a topic and return its name."""
        with Producer(self.address) as producer:
            producer.create_topic(self.name(stem), queue_count)
        return self.name(stem)

    def send(self, topic: str, *bodies: bytes, sharding_key: str | None = None, **options: Any) -> list[SendResult]:
        """Send a message for each of the bodies. ``options`` are those of a message."""
        with Producer(self.address) as producer:
            return [producer.send(Message(topic, body, **options), sharding_key) for body in bodies]

    def stored(self, topic: str) -> list[ReceivedMessage]:
        """Return every message of a topic, queue by queue."""
        with PullConsumer(self.address, group=self.name("onlooker")) as consumer:
            found: list[ReceivedMessage] = []
            for queue in consumer.queues(topic):
                offset = consumer.min_offset(queue)
                while offset < consumer.max_offset(queue):
                    result = consumer.pull(queue, offset)
                    found += result.messages
                    offset = result.next_offset
            return found

    def stored_if_known(self, topic: str) -> list[ReceivedMessage]:
        """Return every message of a topic; none of a topic that is not there yet."""
        try:
            return self.stored(topic)
        except UnknownTopic:
            return []

    @contextmanager
    def running(self, app: App, **options: Any) -> Iterator[PushConsumer]:
        """Run an application's handlers and schedules in this process. ``options`` are those of PushConsumer."""
        options = {"config": QUICK, "crons": app.crons, "tables": app.tables, **options}
        consumer = PushConsumer(self.address, app.handlers, **options)
        consumer.start()
        try:
            yield consumer
            consumer.stop_taking()
            assert consumer.drain(LONG_S) == 0
        finally:
            consumer.close()


def eventually(condition: Callable[[], object], what: str, timeout_s: float = LONG_S) -> None:
    """Return when ``condition`` is true; fail when the time is up."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.01)


def nothing_more(seen: Sequence[object], for_s: float = 0.5) -> None:
    """Fail when something is added to ``seen`` within so many seconds."""
    before = len(seen)
    deadline = time.monotonic() + for_s
    while time.monotonic() < deadline:
        assert len(seen) == before, f"one too many: {seen[-1]!r}"
        time.sleep(0.01)
