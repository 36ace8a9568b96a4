"""Handlers in any process: a script, an asyncio program, a thread of something else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, PushConsumer, ReceivedMessage
from rmqclient.errors import SubscriptionMismatch
from rmqclient.testing import Server
from tests.client.conftest import wait_for
from tests.support.threads import no_thread_left


@pytest.fixture(params=["directory", "url"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What an application names."""
    if request.param == "url":
        server: Server = request.getfixturevalue("server")
        return server.url
    return str(tmp_path / "store")


def test_a_block_handles_messages_and_leaves_the_group(root: str, topic: str) -> None:
    app, handled = App(root), list[bytes]()

    @app.handler(topic, group=topic)
    def handle(message: ReceivedMessage) -> None:
        handled.append(message.body)

    with app.running(threads=2) as consumer, app.producer() as producer:  # a missing store is made
        producer.send(topic, b"1")
        wait_for(lambda: handled == [b"1"], "it is handled")
        assert [each.handler.threads for each in consumer.subscriptions] == [2]
    assert consumer.subscriptions == []
    with app.running():  # and again, in the same process
        with Producer(root) as producer:
            producer.send(topic, b"2")
        wait_for(lambda: handled == [b"1", b"2"], "it is handled")


def test_a_consumer_is_started_and_stopped_by_hand(root: str, topic: str) -> None:
    app, begun, go_on = App(root), threading.Event(), threading.Event()

    @app.handler(topic, group=topic)
    def handle(message: ReceivedMessage) -> None:
        begun.set()
        go_on.wait(20)

    consumer = app.start()
    with app.producer() as producer:
        producer.send(topic, b"")
    assert begun.wait(20)
    assert consumer.stop(timeout=0.01) == 1, "its handler still runs"
    go_on.set()
    assert consumer.stop() == 0


def test_a_public_consumer_runs_chosen_handlers(tmp_path: Path) -> None:
    app, handled = App(), list[str]()
    app.handler("orders", group="billing")(lambda _: handled.append("billing"))
    app.handler("orders", group="audit")(lambda _: handled.append("audit"))
    with Producer(tmp_path / "store") as producer:
        producer.send("orders", b"")
    with PushConsumer(tmp_path / "store", [each for each in app.handlers if each.group == "audit"]):
        wait_for(lambda: handled == ["audit"], "it is handled")


def test_an_error_of_the_start_is_raised_and_nothing_is_left(tmp_path: Path) -> None:
    app, other = App(tmp_path / "store"), App(tmp_path / "store")
    app.handler("orders", group="billing", tags="paid")(lambda _: None)
    other.handler("orders", group="billing", tags="sent")(lambda _: None)
    with no_thread_left("rmq-"):
        with app.running(), pytest.raises(SubscriptionMismatch):
            other.start()
        with other.running():
            pass


def test_an_asyncio_program_shares_its_loop_with_coroutines_and_is_never_blocked(root: str, topic: str) -> None:
    app = App(root)
    loops: list[asyncio.AbstractEventLoop] = []
    plain: list[str] = []

    @app.lifespan
    async def client() -> AsyncIterator[None]:
        loops.append(asyncio.get_running_loop())
        yield
        loops.append(asyncio.get_running_loop())

    @app.handler(topic, group=f"{topic}-async")
    async def handle(message: ReceivedMessage) -> None:
        loops.append(asyncio.get_running_loop())

    @app.handler(topic, group=f"{topic}-plain")
    def handle_plain(message: ReceivedMessage) -> None:
        plain.append(threading.current_thread().name)

    async def main() -> int:
        ticks = 0
        async with app.serving():
            with app.producer() as producer:
                await producer.send_async(topic, b"")
            while len(loops) < 2 or not plain:
                ticks += 1
                await asyncio.sleep(0.001)
        assert loops == [asyncio.get_running_loop()] * 3
        return ticks

    assert asyncio.run(main()) > 0
    assert plain != ["MainThread"]


def test_serve_ends_when_its_task_is_cancelled_after_the_running_handlers(tmp_path: Path) -> None:
    app, ended = App(tmp_path / "store"), list[bytes]()
    begun = threading.Event()

    @app.handler("orders", group="billing")
    async def handle(message: ReceivedMessage) -> None:
        begun.set()
        await asyncio.sleep(0.05)
        ended.append(message.body)

    async def main() -> None:
        serving = asyncio.create_task(app.serve())
        with Producer(tmp_path / "store") as producer:
            await producer.send_async(Message("orders", b"1"))
        await asyncio.to_thread(begun.wait, 20)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    asyncio.run(main())
    assert ended == [b"1"]


def test_an_error_of_the_start_ends_serve(tmp_path: Path) -> None:
    app = App(tmp_path / "store")
    app.handler("orders", group="billing")(lambda _: None)

    @app.on_startup
    async def connect() -> None:
        raise ConnectionError("no database")

    with pytest.raises(ConnectionError, match="no database"):
        asyncio.run(app.serve())


@pytest.mark.guarantee("G61")
def test_threads_of_a_stopped_consumer_are_gone(tmp_path: Path) -> None:
    app = App(tmp_path / "store")

    @app.handler("orders", group="billing")
    async def handle(message: ReceivedMessage) -> None: ...

    with no_thread_left("rmq-billing", "rmq-event-loop", "rmq-coordinator"), app.running(), app.producer() as producer:
        producer.send("orders", b"")
