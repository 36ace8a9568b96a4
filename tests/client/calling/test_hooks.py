"""Middleware and lifespans: what runs around calls, around sends, and around the life of a process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from rmqclient import App, Batch, HandlerCall, Message, Producer, ReceivedMessage, Sending, TransactionProducer
from rmqclient.errors import HandlerError, QueueError
from rmqclient.opening import Place
from tests.client.conftest import NOWHERE, SOON, consuming, wait_for


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("options", [{}, {"order": "queue"}, {"order": "key"}, {"batch": Batch(5)}], ids=str)
def test_middleware_surrounds_each_call_the_first_outermost(
    place: Place, topic: str, options: dict[str, Any], is_async: bool
) -> None:
    app, steps, done = App(NOWHERE), list[str](), threading.Event()

    @app.middleware
    def outer(call: HandlerCall) -> Iterator[None]:
        steps.append(f"outer {call.handler.group} {len(call.messages)} {call.message.body.decode()}")
        yield
        steps.append(f"returned {call.result}")
        done.set()

    def inner(call: HandlerCall) -> Iterator[None]:
        steps.append("inner")
        yield
        call.result = 7

    async def inner_later(call: HandlerCall) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        steps.append("inner")
        yield
        await asyncio.sleep(0)
        call.result = 7

    def handle(given: object) -> int:
        steps.append("handle")
        return 5

    async def handle_later(given: object) -> int:
        await asyncio.sleep(0)
        return handle(given)

    app.middleware(inner_later if is_async else inner)
    app.handler(topic, group=topic, **options)(handle_later if is_async else handle)
    with Producer(place) as producer:
        producer.send(Message(topic, b"one"))
        with consuming(place, app):
            assert done.wait(20)
    assert steps == [f"outer {topic} 1 one", "inner", "handle", "returned 7"]


def test_middleware_sees_failures_and_may_change_them(place: Place, topic: str) -> None:
    app, seen = App(NOWHERE), list[str]()

    @app.middleware
    def patient(call: HandlerCall) -> Iterator[None]:
        try:
            yield
        except ValueError:
            seen.append("given up")  # and so the message is finished
        except TimeoutError as error:
            seen.append("again")
            raise RuntimeError("the bank is away") from error

    @app.handler(topic, group=topic, retry=SOON)
    def handle(message: ReceivedMessage) -> None:
        raise TimeoutError if message.delivery_attempt == 1 else ValueError

    with Producer(place) as producer:
        producer.send(Message(topic, b""))
        with consuming(place, app) as consumer:
            wait_for(lambda: consumer.counters.handled == 1, "the second attempt is no failure")
    assert seen == ["again", "given up"]


def test_async_middleware_around_a_plain_handler_is_refused_before_a_message_is_taken(tmp_path: Any) -> None:
    app = App(tmp_path / "store")

    @app.middleware
    async def later(call: HandlerCall) -> AsyncIterator[None]:
        yield

    app.handler("orders", group="billing")(no_generator)
    with pytest.raises(HandlerError, match=r"later is async, and handler .*no_generator is not"):
        app.start()


def no_generator(given: object) -> None: ...
async def no_generator_later(given: object) -> None: ...


async def later(sending: Sending) -> AsyncIterator[None]:
    yield


def generates() -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("decorate", "function", "why"),
    [
        (lambda app: app.middleware, no_generator, "must contain one `yield`"),
        (lambda app: app.lifespan, no_generator_later, "must contain one `yield`"),
        (lambda app: app.send_middleware, later, "one `yield` and no `async`"),
        (lambda app: app.on_startup, generates, "use @app.lifespan"),
        (lambda app: app.on_shutdown, 5, "is not a function"),
    ],
)
def test_a_function_that_cannot_be_a_hook_is_refused_where_it_is_registered(
    decorate: Callable[[App], Any], function: Any, why: str
) -> None:
    with pytest.raises(HandlerError, match=why):
        decorate(App(NOWHERE))(function)


# --- sends ---------------------------------------------------------------------------------------------------------


def stamped(sending: Sending) -> Iterator[None]:
    sending.messages = [
        Message(each.topic, each.body, tags=each.tags, keys=each.keys, properties={"by": "shop"})
        for each in sending.messages
    ]
    yield


def test_middleware_surrounds_every_way_to_send(place: Place, topic: str) -> None:
    sends: list[tuple[list[object], int, str | None]] = []

    def noted(sending: Sending) -> Iterator[None]:
        yield
        sends.append(([each.body for each in sending.messages], len(sending.results), sending.sharding_key))

    with Producer(place, middleware=[noted, stamped]) as producer:
        producer.send(Message(topic, b"1"), "a key")
        producer.send(topic, b"2")
        producer.send_batch([Message(topic, b"3"), Message(topic, b"4")])
        producer.send_async(topic, b"5").result()
        found = [message for message in read(place, topic) if message.properties.get("by") == "shop"]
    assert [(bodies, key) for bodies, _, key in sends] == [
        ([b"1"], "a key"), ([b"2"], None), ([b"3", b"4"], None), ([b"5"], None),
    ]  # fmt: skip
    assert [count for _, count, _ in sends[:3]] == [1, 1, 2]
    assert sorted(message.body for message in found) == [b"1", b"2", b"3", b"4", b"5"]


def read(place: Place, topic: str) -> list[ReceivedMessage]:
    from rmqclient.consuming.reader import Reader  # noqa: PLC0415 - beside its use

    with Reader(place) as reader:
        return list(reader.tail(topic, start="earliest", follow=False))


def test_middleware_surrounds_transactions_sends_by_key_and_the_write_buffer(tmp_path: Any) -> None:
    root = tmp_path / "store"
    with Producer(root, middleware=[stamped], write_buffer_bytes=1 << 16) as producer:
        producer.send_buffered(Message("orders", b"1"))
        producer.flush()
        producer.send_once(Message("orders", b"2"), "key-2")
        assert producer.send_once(Message("orders", b"2"), "key-2").is_duplicate
    with TransactionProducer(root, group="shop", middleware=[stamped]) as transactions:
        transactions.transaction(Message("orders", b"3")).commit()
    stamps = {message.body: message.properties.get("by") for message in read(str(root), "orders")}
    assert stamps == {b"1": "shop", b"2": "shop", b"3": "shop"}


def test_middleware_may_refuse_a_send_and_must_not_swallow_its_error(tmp_path: Any) -> None:
    def careful(sending: Sending) -> Iterator[None]:
        if sending.messages[0].body == b"no":
            raise ValueError("not this one")
        with contextlib.suppress(QueueError):
            yield

    with Producer(tmp_path / "store", middleware=[careful]) as producer:
        with pytest.raises(ValueError, match="not this one"):
            producer.send("orders", b"no")
        with pytest.raises(QueueError, match="swallowed its error"):
            producer.send("or.ders", b"")
        producer.send("orders", b"yes")
    assert [message.body for message in read(str(tmp_path / "store"), "orders")] == [b"yes"]


def test_a_producer_of_an_application_has_its_store_and_its_middleware(tmp_path: Any) -> None:
    app = App(tmp_path / "store")
    app.send_middleware(stamped)
    with app.producer() as producer:
        producer.send("orders", b"1")
    (message,) = read(str(tmp_path / "store"), "orders")
    assert message.properties["by"] == "shop"


# --- lifespans -----------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("G61")
def test_lifespans_run_around_all_messages_of_a_process(place: Place, topic: str) -> None:
    app, steps = App(NOWHERE), list[str]()
    loops: set[asyncio.AbstractEventLoop] = set()

    @app.on_startup
    def first() -> None:
        steps.append("startup")

    @app.lifespan
    def pool() -> Iterator[None]:
        steps.append("pool")
        yield
        steps.append("pool closed")

    @app.lifespan
    async def client() -> AsyncIterator[None]:
        loops.add(asyncio.get_running_loop())
        steps.append("client")
        yield
        loops.add(asyncio.get_running_loop())
        steps.append("client closed")

    @app.on_shutdown
    async def last() -> None:
        steps.append("shutdown")

    @app.handler(topic, group=topic, threads=3)
    async def handle(message: ReceivedMessage) -> None:
        loops.add(asyncio.get_running_loop())
        steps.append("handle")

    with Producer(place) as producer:
        producer.send(Message(topic, b""))
        with consuming(place, app):
            wait_for(lambda: "handle" in steps, "it is handled")
    assert steps == ["startup", "pool", "client", "handle", "shutdown", "client closed", "pool closed"]
    assert len(loops) == 1, "what a lifespan makes in a loop can be used by every handler"


def test_a_lifespan_that_fails_ends_those_before_it_and_no_message_is_taken(tmp_path: Any) -> None:
    app, steps = App(tmp_path / "store"), list[str]()

    @app.lifespan
    def pool() -> Iterator[None]:
        yield
        steps.append("pool closed")

    @app.on_startup
    async def connect() -> None:
        raise ConnectionError("no database")

    app.handler("orders", group="billing")(lambda _: steps.append("handled"))
    with Producer(tmp_path / "store") as producer:
        producer.send("orders", b"")
    with pytest.raises(ConnectionError, match="no database") as failed:
        app.start()
    assert any("startup function" in note and "connect failed" in note for note in failed.value.__notes__)
    assert steps == ["pool closed"]


def test_every_end_of_a_lifespan_runs_although_one_fails(tmp_path: Any) -> None:
    app, steps = App(tmp_path / "store"), list[str]()

    @app.on_shutdown
    def one() -> None:
        steps.append("one")

    @app.on_shutdown
    def two() -> None:
        raise ConnectionError("no database")

    app.handler("orders", group="billing")(no_generator)
    with pytest.raises(ConnectionError), app.running():
        pass
    assert steps == ["one"]
