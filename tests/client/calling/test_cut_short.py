"""Cut short: what becomes of coroutines that still run when the consumer stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Batch, Message, Producer, PullConsumer, ReceivedMessage, RetryPolicy
from rmqclient.errors import UnknownTopic
from tests.client.conftest import wait_for

LOSING = RetryPolicy(retry_on=(ConnectionError,))
"""Any other failure is a dead letter at once."""


def dead_letters(root: Path) -> int:
    with PullConsumer(root, group="looks") as consumer:
        try:
            return sum(consumer.max_offset(queue) for queue in consumer.queues("%DLQ%g"))
        except UnknownTopic:
            return 0


def committed(root: Path) -> int:
    with PullConsumer(root, group="g") as consumer:
        return sum(consumer.committed_offset(queue) or 0 for queue in consumer.queues("t"))


def unhandled(root: Path, **options: Any) -> tuple[App, list[int], asyncio.Event]:
    """Send a message, and return an application whose handler of it ends when the event is set."""
    app, begun, may_end = App(root), list[int](), asyncio.Event()

    async def handle(message: Any) -> None:
        begun.append(1)
        await may_end.wait()

    app.handler("t", group="g", retry=LOSING, **options)(handle)
    with Producer(root) as producer:
        producer.create_topic("t", 1)
        producer.send(Message("t", b"x"), "a key")
    return app, begun, may_end


@pytest.mark.parametrize("options", [{}, {"order": "queue"}, {"order": "key"}, {"batch": Batch(2)}], ids=str)
def test_a_coroutine_that_runs_past_the_deadline_of_a_stop_has_not_failed(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    app, begun, _ = unhandled(tmp_path / "store", **options)
    consumer = app.start()
    wait_for(lambda: begun, "it is begun")
    delivery = consumer.subscriptions[0].delivery
    assert consumer.stop(0) == 1
    wait_for(lambda: delivery.running == 0, "it is cancelled")
    assert delivery.counters.failed == 0
    assert dead_letters(tmp_path / "store") == 0
    assert committed(tmp_path / "store") == 0


@pytest.mark.parametrize("options", [{}, {"batch": Batch(2)}], ids=str)
def test_a_message_whose_coroutine_was_cut_short_comes_again(tmp_path: Path, options: dict[str, Any]) -> None:
    app, begun, may_end = unhandled(tmp_path / "store", **options)
    consumer = app.start()
    wait_for(lambda: begun, "it is begun")
    consumer.stop(0)
    may_end.set()
    with app.running() as consumer:
        wait_for(lambda: consumer.counters.handled == 1, "it is handled")
    assert len(begun) == 2


async def in_a_thread(go_on: threading.Event) -> None:
    await asyncio.to_thread(go_on.wait)


async def in_the_loop(go_on: threading.Event) -> None:
    go_on.wait()


@pytest.mark.parametrize("wait", [in_a_thread, in_the_loop])
@pytest.mark.parametrize("options", [{}, {"order": "queue"}], ids=str)
def test_a_stop_returns_although_a_coroutine_waits_without_end(
    tmp_path: Path, wait: Callable[[threading.Event], Any], options: dict[str, Any]
) -> None:
    app, begun, go_on, left = App(tmp_path / "store"), threading.Event(), threading.Event(), list[int]()

    @app.handler("t", group="g", **options)
    async def handle(message: ReceivedMessage) -> None:
        begun.set()
        await wait(go_on)

    consumer = app.start()
    with Producer(tmp_path / "store") as producer:
        producer.send(Message("t", b"x"))
    assert begun.wait(20)
    stopping = threading.Thread(target=lambda: left.append(consumer.stop(0)), daemon=True)
    stopping.start()
    try:
        wait_for(lambda: left == [1], "the stop returns")
    finally:
        go_on.set()
        stopping.join()
