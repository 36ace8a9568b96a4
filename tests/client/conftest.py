"""Stores and running consumers for the tests of this folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqclient import App, Producer, RetryPolicy
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.opening import Place
from rmqclient.store import MessageStore, open_store
from tests.backend.fixtures import backend
from tests.support.host.load import slowdown

__all__ = ["NOWHERE", "QUICK", "SOON", "backend", "consuming", "producer", "store", "wait_for"]

NOWHERE = "nowhere"
"""The store of an application whose handlers run on a backend of the test."""

QUICK = ConsumerConfig(local_retry_ms=20)
SOON = RetryPolicy(delay_levels=(1,))
"""Every retry after a second."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def producer(request: pytest.FixtureRequest) -> Iterator[Producer]:
    """A producer for the backend of a test that runs on each of them, else for its store."""
    place = request.getfixturevalue("backend" if "backend" in request.fixturenames else "store")
    with Producer(place) as made:
        yield made


@contextmanager
def consuming(place: Place, app: App, config: ConsumerConfig = QUICK) -> Iterator[PushConsumer]:
    """Run an application's handlers and schedules in this process."""
    consumer = PushConsumer(place, app.handlers, config=config, crons=app.crons, tables=app.tables, hooks=app.hooks)
    consumer.start()
    try:
        yield consumer
    finally:
        consumer.stop_taking()
        try:
            assert consumer.drain(30) == 0
        finally:
            consumer.close()


def wait_for(condition: Callable[[], object], what: str, *, timeout_s: float = 10.0) -> None:
    """Return when ``condition`` is true; fail after the time limit, which is longer on a busy machine."""
    begin = time.monotonic()
    while not condition():
        waited = time.monotonic() - begin
        assert waited < timeout_s or waited < timeout_s * slowdown(), f"never came: {what}"
        time.sleep(0.002)
