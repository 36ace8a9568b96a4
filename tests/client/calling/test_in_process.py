"""Handlers in any process: a script, an asyncio program, a thread of something else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Message, Producer, PushConsumer, ReceivedMessage
from rmqclient.errors import HandlerError, SubscriptionMismatch
from rmqclient.store import layout
from rmqclient.store.errors import TableFull
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


def test_serve_that_is_cancelled_while_it_opens_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(tmp_path / "store")
    app.handler("orders", group="billing")(lambda _: None)
    opening, cancelled = threading.Event(), threading.Event()
    make = app._consumer

    def consumer_slowly(*arguments: Any) -> PushConsumer:
        opening.set()
        assert cancelled.wait(20)
        return make(*arguments)

    async def main() -> None:
        serving = asyncio.create_task(app.serve())
        await asyncio.to_thread(opening.wait, 20)
        serving.cancel()
        asyncio.get_running_loop().call_soon(cancelled.set)
        with pytest.raises(asyncio.CancelledError):
            await serving

    monkeypatch.setattr(app, "_consumer", consumer_slowly)
    with no_thread_left("rmq-"):
        asyncio.run(main())
    assert not (tmp_path / "store" / "abort").exists(), "the store is closed"


def test_a_start_that_finds_no_room_closes_the_consumer(tmp_path: Path) -> None:
    app, life = App(tmp_path / "store"), list[str]()

    @app.lifespan
    def pool() -> Iterator[None]:
        life.append("opened")
        yield
        life.append("closed")

    @app.handler("orders", group="billing", threads=layout.RUNNING_SLOTS // 1000 + 1, coroutines=1000)
    async def handle(_: ReceivedMessage) -> None: ...

    with no_thread_left("rmq-"), pytest.raises(TableFull):
        app.start()
    assert life == ["opened", "closed"]
    assert not (tmp_path / "store" / "abort").exists(), "the store is closed"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_that_stops_its_own_consumer_is_told_what_to_do(tmp_path: Path, is_async: bool) -> None:
    app, raised = App(tmp_path / "store"), list[BaseException]()

    def stop() -> None:
        try:
            consumer.stop(0.01)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            raised.append(error)

    app.handler("orders", group="billing")(_calling(stop, is_async=is_async))
    consumer = app.start()
    with app.producer() as producer:
        producer.send("orders", b"")
    wait_for(lambda: raised, "it is refused")
    (error,) = raised
    assert isinstance(error, HandlerError)
    assert "call stop_taking() there" in str(error)
    assert consumer.stop() == 0


def _calling(function: Callable[[], None], *, is_async: bool) -> Callable[[ReceivedMessage], object]:
    """Return a handler that calls a function, in a thread or in the event loop."""

    async def handle_async(_: ReceivedMessage) -> None:
        function()

    def handle(_: ReceivedMessage) -> None:
        function()

    return handle_async if is_async else handle


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


def test_a_producer_goes_on_when_the_consumer_beside_it_ends(tmp_path: Path) -> None:
    app = App(tmp_path / "store")

    @app.handler("orders", group="billing")
    def handle(message: ReceivedMessage) -> None: ...

    consumer = app.start()
    with app.producer() as producer:
        kept = [producer, app.shared_producer]
        consumer.stop(timeout=5)
        for each in kept:
            each.send("orders", b"")
    assert app.shared_producer is kept[1]
    app.shared_producer.close()  # it lives as long as the process, which has other tests
