"""A store with two groups, one of which fails some messages, and what Prometheus reads of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.metrics import Observation, Sampler

SENT = 100


class Poison(Exception):
    """What the handler raises for each tenth message."""


def wait_for(condition: Callable[[], bool], what: str, limit_s: float = 60.0) -> None:
    """Return when the condition holds; fail when the time is up."""
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, f"after {limit_s:g} s: {what}"
        time.sleep(0.01)


def is_finished(sample: Observation) -> bool:
    """Tell whether every group has finished every message."""
    return bool(sample.group_queues) and all(each.lag == 0 and each.in_flight == 0 for each in sample.group_queues)


def application(root: Path) -> App:
    """Return an application that handles a topic in two ways."""
    app = App(str(root))

    @app.handler("orders", group="billing", tags="paid", retry=RetryPolicy(dead_letter_on=(Poison,)))
    def bill(message: ReceivedMessage) -> None:
        if int(message.body) % 10 == 0:
            raise Poison

    @app.handler("orders", group="audit", order="queue")
    def audit(message: ReceivedMessage) -> None:
        """Take it."""

    return app


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def handled(root: Path) -> Iterator[Sampler]:
    """Messages 0 to 99, of which every fourth is not paid; both groups have finished them, and still run."""
    with Producer(root) as producer:
        for number in range(SENT):
            producer.send(Message("orders", b"%d" % number, tags="open" if number % 4 == 1 else "paid"))
        consumer = PushConsumer(root, application(root).handlers)
        consumer.start()
        with Sampler(root) as sampler:
            wait_for(lambda: is_finished(sampler.sample()), "everything is handled")
            wait_for(lambda: sum(each.handled.total for each in sampler.sample().handling) > 0, "times are added up")
            yield sampler
            consumer.close()
