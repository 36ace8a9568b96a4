"""What leaves a thread of the library, and what logging raises: nobody waits for ever, and no message is lost."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Message, Outbox, Producer, ReceivedMessage, Relay, RetryPolicy, Table
from rmqclient.backend import Backend
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.errors import ThreadLost
from rmqclient.store import MessageStore
from rmqclient.store.threads.guarded import GuardedThread, Loss, tell, tell_no_more
from tests.client.conftest import NOWHERE, QUICK, consuming, wait_for

NOT_EXCEPTIONS = [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]


class LateLimit(Exception):
    """A time limit that other code raises in the thread of a handler."""


class Silent(Exception):
    """An error that ends whoever asks what it is."""

    def __str__(self) -> str:
        raise SystemExit("no text")


@pytest.mark.parametrize("kind", NOT_EXCEPTIONS)
def test_whatever_leaves_a_thread_is_told_and_printed(
    kind: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    # Given somebody who has asked for losses
    told: list[Loss] = []
    tell(told.append)

    # When an error leaves a thread of the library
    def work() -> None:
        raise kind("gone")

    thread = GuardedThread(target=work, name="rmq-some")
    thread.start()
    thread.join()
    tell_no_more(told.append)

    # Then it is told, with the thread and the error, and the traceback is printed
    assert [loss.thread for loss in told] == ["rmq-some"]
    assert isinstance(told[0].error, kind)
    assert "rmq-some" in capsys.readouterr().err


@pytest.mark.guarantee("G100")
def test_a_consumer_whose_thread_is_lost_ends_and_its_messages_are_handled_elsewhere(
    store: MessageStore, producer: Producer
) -> None:
    # Given a handler whose thread gets an exception when it has returned: between two messages
    producer.create_topic("t", 1)
    app, struck, elsewhere = App(NOWHERE), threading.Event(), list[str]()

    @app.handler("t", group="g")
    def strike(message: ReceivedMessage) -> None:
        strike_later(threading.get_ident(), struck)

    consumer = PushConsumer(store, app.handlers, config=QUICK)
    consumer.start()
    producer.send("t", "late")
    assert struck.wait(10)
    producer.send("t", "next")

    # When the thread is lost
    wait_for(lambda: consumer.loss, "the consumer knows")

    # Then another consumer gets the queue, and handles what was left
    other = App(NOWHERE)
    other.handler("t", group="g")(lambda body: elsewhere.append(str(body)))
    with consuming(store, other):
        wait_for(lambda: elsewhere, "the next message is handled")

    # And the owner of the first one is told
    with pytest.raises(ThreadLost) as raised:
        consumer.stop()
    assert isinstance(raised.value.__cause__, LateLimit)


def strike_later(thread: int, struck: threading.Event) -> None:
    """Raise LateLimit in a thread when its handler has returned; the exception comes when the thread wakes up."""

    def strike() -> None:
        time.sleep(0.05)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(LateLimit))
        struck.set()

    threading.Thread(target=strike).start()


def test_serve_raises_when_a_thread_is_lost(tmp_path: Path) -> None:
    # Given an application that serves in an asyncio program
    app, struck = App(tmp_path / "store"), threading.Event()

    @app.handler("t", group="g")
    def strike(message: ReceivedMessage) -> None:
        strike_later(threading.get_ident(), struck)

    async def program() -> None:
        serving = asyncio.create_task(app.serve())
        with app.producer() as producer:
            producer.send("t", "late")
            assert await asyncio.to_thread(struck.wait, 10)
            producer.send("t", "next")
            await asyncio.wait_for(serving, 30)

    # When a thread is lost, Then the program is told
    with pytest.raises(ThreadLost):
        asyncio.run(program())


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
@pytest.mark.parametrize("order", [None, "queue", "key"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_filter_of_logging_that_raises_changes_no_messages_fate(
    store: MessageStore, producer: Producer, failing_filter: Any, kind: type[BaseException], order: Any, is_async: bool
) -> None:
    # Given a filter of the application's that raises at each line
    failing_filter(kind)
    producer.create_topic("t", 1)
    app, handled = App(NOWHERE), list[str]()

    def work(body: str, attempt: int) -> None:
        if body == "bad" and attempt == 1:
            raise ValueError(body)
        handled.append(body)

    def plain(message: ReceivedMessage) -> None:
        work(message.body.decode(), message.delivery_attempt)

    async def coroutine(message: ReceivedMessage) -> None:
        work(message.body.decode(), message.delivery_attempt)

    retry = RetryPolicy(delays=(0.01,)) if order is None else RetryPolicy()
    app.handler("t", group="g", order=order, retry=retry)(coroutine if is_async else plain)

    # When a handler fails, which is logged
    with consuming(store, app, ConsumerConfig(suspend_ms=20)) as consumer:
        for body in ("good", "bad", "good too"):
            producer.send("t", body, sharding_key="k")
        wait_for(lambda: len(handled) == 3, "all are handled")

        # Then its message is tried again, and the others are handled
        assert sorted(handled) == ["bad", "good", "good too"]
        assert consumer.loss is None


@pytest.fixture
def failing_filter() -> Iterator[Any]:
    added: list[logging.Filter] = []

    def add(kind: type[BaseException]) -> None:
        class Failing(logging.Filter):
            def filter(self, _record: logging.LogRecord) -> bool:
                raise kind("the filter failed")

        added.append(Failing())
        for name in ("delivery.modes.send_back", "delivery.suspension", "consuming.rebalance", "consuming.allocator"):
            logging.getLogger(f"rmqclient.{name}").addFilter(added[0])

    yield add
    for name in ("delivery.modes.send_back", "delivery.suspension", "consuming.rebalance", "consuming.allocator"):
        logging.getLogger(f"rmqclient.{name}").removeFilter(added[0])


@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_that_cannot_be_printed_is_a_failure_as_any_other(
    backend: Backend, producer: Producer, is_async: bool
) -> None:
    # Given a handler that raises what ends whoever asks for its text
    app = App(NOWHERE)

    def plain(message: ReceivedMessage) -> None:
        raise Silent

    async def coroutine(message: ReceivedMessage) -> None:
        raise Silent

    app.handler("t", group="g", retry=RetryPolicy(max_retries=0))(coroutine if is_async else plain)

    # When it fails, Then its message is a dead letter
    with consuming(backend, app) as consumer:
        producer.send("t", "x")
        wait_for(lambda: consumer.counters.failed == 1, "it failed")
        assert consumer.loss is None


def test_the_loop_goes_on_when_a_task_of_the_application_ends_it(backend: Backend, producer: Producer) -> None:
    # Given a coroutine that starts a task, which exits
    app, handled = App(NOWHERE), list[str]()

    @app.handler("t", group="g")
    async def start(body: str) -> None:
        async def leave() -> None:
            raise SystemExit

        if body == "leave":
            asyncio.get_running_loop().create_task(leave())
        await asyncio.sleep(0.01)
        handled.append(body)

    # When it has exited, Then the loop runs what comes behind it
    with consuming(backend, app) as consumer:
        producer.send("t", "leave")
        producer.send("t", "next")
        wait_for(lambda: len(handled) == 2, "both are handled")
        assert consumer.loss is None


def test_a_loop_that_makes_no_more_tasks_ends_its_consumer_and_no_message_waits_for_ever(
    backend: Backend, producer: Producer
) -> None:
    # Given a handler that gives the loop a task factory which fails
    producer.create_topic("t", 1)
    app, struck = App(NOWHERE), threading.Event()

    def fail(*_: object, **__: object) -> Any:
        raise RuntimeError("no more tasks")

    async def strike(message: ReceivedMessage) -> None:
        asyncio.get_running_loop().set_task_factory(fail)
        struck.set()

    app.handler("t", group="g")(strike)
    consumer = PushConsumer(backend, app.handlers, config=QUICK)
    consumer.start()
    producer.send("t", b"strikes")
    assert struck.wait(30)

    # When the next message comes
    producer.send("t", b"next")

    # Then the consumer ends with the error, and another one handles the message
    wait_for(lambda: consumer.loss is not None, "the error is told")
    with pytest.raises(ThreadLost):
        consumer.stop(timeout=0.1)
    handled, other = list[bytes](), App(NOWHERE)
    other.handler("t", group="g")(lambda message: handled.append(message.body))
    with PushConsumer(backend, other.handlers, config=QUICK):
        wait_for(lambda: b"next" in handled, "it is handled elsewhere")


class _Asked(type):
    """Classes that end whoever asks whether an error is one of theirs."""

    def __instancecheck__(cls, _: object) -> bool:
        raise SystemExit("no answer")


class Asked(Exception, metaclass=_Asked):
    """Such a class."""


class Nameless(Exception):
    """An error that ends whoever asks for its class."""

    @property
    def __class__(self) -> type:
        raise SystemExit("no class")

    @__class__.setter
    def __class__(self, _: type) -> None: ...


@pytest.mark.parametrize("kind", [Nameless, Asked])
@pytest.mark.parametrize("order", [None, "queue", "key"])
@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_that_cannot_be_compared_is_a_failure_as_any_other(
    store: MessageStore, producer: Producer, kind: type[Exception], order: Any, is_async: bool
) -> None:
    # Given a handler that raises what ends whoever asks of which class it is
    producer.create_topic("t", 1)
    app, handled = App(NOWHERE), list[str]()

    def plain(message: ReceivedMessage) -> None:
        if message.body == b"bad":
            raise kind
        handled.append(message.body.decode())

    async def coroutine(message: ReceivedMessage) -> None:
        plain(message)

    retry = RetryPolicy(max_retries=0, dead_letter_on=(Asked,))
    app.handler("t", group="g", order=order, retry=retry)(coroutine if is_async else plain)

    # When it fails, Then its message is a dead letter, and the next one is handled
    with consuming(store, app) as consumer:
        for body in ("bad", "good"):
            producer.send("t", body, sharding_key="k")
        wait_for(lambda: handled == ["good"] and consumer.counters.failed == 1, "both are handled")
        assert consumer.loss is None


@pytest.mark.parametrize("kind", NOT_EXCEPTIONS)
def test_a_listener_of_a_table_that_raises_ends_neither_the_table_nor_its_process(
    store: MessageStore, producer: Producer, kind: type[BaseException]
) -> None:
    told: list[Loss] = []
    tell(told.append)

    def listen(_: set[str]) -> None:
        raise kind

    try:
        with Table(store, "prices", on_change=listen) as prices:
            for value in (b"1", b"2"):
                producer.send("prices", value, key="a")
                wait_for(lambda value=value: prices.get("a") == value, "it is read")  # type: ignore[misc]
    finally:
        tell_no_more(told.append)
    assert not told


@pytest.mark.parametrize("kind", NOT_EXCEPTIONS)
def test_a_relay_whose_database_raises_tries_again(
    store: MessageStore, tmp_path: Path, kind: type[BaseException]
) -> None:
    tried: list[int] = []

    def connect() -> sqlite3.Connection:
        tried.append(1)
        if len(tried) == 1:
            raise kind
        return sqlite3.connect(tmp_path / "database", check_same_thread=False)

    with sqlite3.connect(tmp_path / "database") as connection:
        outbox = Outbox()
        outbox.create(connection)
        outbox.add(connection, Message("t", b"x"))
    connection.close()
    with Relay(store, outbox, connect, interval=0.01).running():
        wait_for(lambda: "t" in store.topics.topics() and len(tried) > 1, "it is sent")
