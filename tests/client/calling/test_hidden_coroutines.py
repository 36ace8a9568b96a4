"""Hidden coroutines: `async` functions that do not look like ones, and what a handler returns without running it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import pytest

from rmqclient import App, Batch, Depends, HandlerCall, Message, Producer, ReceivedMessage
from rmqclient.errors import HandlerError
from rmqclient.opening import Place
from tests.backend.in_memory import in_memory_backend
from tests.client.conftest import NOWHERE, SOON, consuming, wait_for

MODES: list[dict[str, Any]] = [{}, {"order": "queue"}, {"order": "key"}, {"batch": Batch(2)}, {"replies": True}]

_ran: list[str] = []


@pytest.fixture(autouse=True)
def ran() -> list[str]:
    """The functions that ran, in their order."""
    _ran.clear()
    return _ran


async def handle(message: Any) -> None:
    await asyncio.sleep(0)
    _ran.append("handle")


class Mailer:
    """An object that is called like a function."""

    async def __call__(self, message: Any) -> None:
        await handle(message)


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate as most decorators do, which do not know of coroutines."""

    @functools.wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        return function(*given, **named)

    return called


def unnamed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate without a trace of the function."""

    def called(message: object) -> Any:
        return function(message)

    return called


def run_at_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a plain function of an ``async`` one."""

    @functools.wraps(function)
    def called(*given: Any) -> Any:
        return asyncio.run(function(*given))

    return called


def generate(message: Any) -> Iterator[None]:
    _ran.append("generate")
    yield


async def generate_later(message: Any) -> AsyncIterator[None]:
    _ran.append("generate later")
    yield


async def forget(message: Any) -> Any:
    """Call an ``async`` function without ``await``."""
    return handle(message)


HIDDEN = [Mailer(), logged(handle), functools.partial(Mailer()), logged(Mailer()), run_at_once(handle)]


@pytest.mark.parametrize("options", MODES, ids=str)
@pytest.mark.parametrize("function", HIDDEN, ids=["object", "decorated", "partial", "decorated object", "run at once"])
def test_an_async_function_runs_however_it_is_wrapped(
    topic: str, function: Callable[..., Any], options: dict[str, Any], ran: list[str]
) -> None:
    app, place = App(NOWHERE), in_memory_backend()
    app.handler(topic, group=topic, **options)(function)
    with Producer(place) as producer:
        producer.send(Message(topic, b"x"), "a key")
        with consuming(place, app) as consumer:
            wait_for(lambda: consumer.counters.handled == 1, "it is handled")
            assert consumer.counters.failed == 0
    assert ran == ["handle"]


@pytest.mark.parametrize("options", MODES, ids=str)
@pytest.mark.parametrize(
    "function",
    [unnamed(handle), logged(generate), logged(generate_later), forget],
    ids=["coroutine", "generator", "async generator", "not awaited"],
)
def test_what_a_handler_returns_without_running_it_fails_the_message(
    topic: str,
    function: Callable[..., Any],
    options: dict[str, Any],
    ran: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, place = App(NOWHERE), in_memory_backend()
    app.handler(topic, group=topic, **options)(function)
    with Producer(place) as producer:
        producer.create_topic(topic, 1)
        with consuming(place, app) as consumer:
            producer.send(Message(topic, b"x"), "a key")
            wait_for(lambda: consumer.counters.failed, "it fails")
            assert consumer.counters.handled == 0
    assert ran == []
    assert "which nobody runs" in caplog.text


def test_a_decorated_coroutine_comes_again_when_it_fails(place: Place, topic: str) -> None:
    app, attempts = App(NOWHERE), list[int]()

    @app.handler(topic, group=topic, retry=SOON)
    @logged
    async def handle(message: ReceivedMessage) -> None:
        attempts.append(message.delivery_attempt)
        if message.delivery_attempt == 1:
            raise ValueError("no")

    with Producer(place) as producer:
        producer.send(Message(topic, b"x"))
        with consuming(place, app):
            wait_for(lambda: attempts == [1, 2], "it comes again")


def session() -> Iterator[str]:
    yield "session"
    _ran.append("close")


def test_middleware_and_dependencies_surround_a_decorated_coroutine(topic: str, ran: list[str]) -> None:
    app, place = App(NOWHERE), in_memory_backend()

    @app.middleware
    def timed(call: HandlerCall) -> Iterator[None]:
        ran.append("begin")
        yield
        ran.append(f"end with {call.result}")

    @app.handler(topic, group=topic)
    @logged
    async def bill(message: ReceivedMessage, session: Annotated[str, Depends(session)]) -> str:
        await handle(message)
        return session

    with Producer(place) as producer:
        producer.send(Message(topic, b"x"))
        with consuming(place, app) as consumer:
            wait_for(lambda: consumer.counters.handled == 1, "it is handled")
    assert ran == ["begin", "handle", "close", "end with session"]


class Connection:
    """Makes a value when it is called."""

    async def __call__(self) -> str:
        return "connection"


class Session:
    """Makes a value, and cleans up behind it."""

    def __call__(self) -> Iterator[str]:
        yield "session"
        _ran.append("close")


@logged
async def pool() -> str:
    return "pool"


def test_objects_and_decorated_coroutines_are_dependencies(topic: str, ran: list[str]) -> None:
    app, place = App(NOWHERE), in_memory_backend()

    @app.handler(topic, group=topic)
    async def handle(
        message: ReceivedMessage,
        connection: Annotated[str, Depends(Connection())],
        session: Annotated[str, Depends(Session())],
        pool: Annotated[str, Depends(pool)],
    ) -> None:
        ran.extend([connection, session, pool])

    with Producer(place) as producer:
        producer.send(Message(topic, b"x"))
        with consuming(place, app) as consumer:
            wait_for(lambda: consumer.counters.handled == 1, "it is handled")
    assert ran == ["connection", "session", "pool", "close"]


class Stream:
    """An object whose call runs nothing of it."""

    def __call__(self, message: object) -> Iterator[object]:
        yield message


def test_an_object_whose_call_is_a_generator_is_refused() -> None:
    with pytest.raises(HandlerError, match=r"Stream contains `yield`"):
        App(NOWHERE).handler("t", group="g")(Stream())


def test_an_object_with_an_async_call_may_say_how_many_run_at_once() -> None:
    app = App(NOWHERE)
    app.handler("t", group="g", coroutines=4)(Mailer())
    assert app.handlers[0].coroutine_count == 4
