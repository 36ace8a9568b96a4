"""What a handler gets: the body, the message and what it depends on, by annotation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from rmqclient import App, Batch, Depends, Message, Producer, ReceivedMessage
from rmqclient.calling.event_loop import EventLoop
from rmqclient.calling.hooks import Hooks
from rmqclient.delivery.caller import make_caller
from rmqclient.errors import HandlerError
from rmqclient.handler import Handler
from rmqclient.names import function_name
from rmqclient.opening import Place
from tests.client.conftest import NOWHERE, consuming, wait_for
from tests.support.received import received


@dataclass
class Order:
    total: float


ORDER = b'{"total":2.5}'
_steps: list[str] = []


@pytest.fixture(autouse=True)
def steps() -> list[str]:
    """What ran, in its order."""
    _steps.clear()
    return _steps


def connection() -> Iterator[str]:
    _steps.append("open")
    try:
        yield "connection"
    except RuntimeError:
        _steps.append("roll back")
        raise
    finally:
        _steps.append("close")


def session(connection: Annotated[str, Depends(connection)], message: ReceivedMessage) -> str:
    _steps.append("session")
    return f"session on {connection} for {message.topic}"


fresh = Depends(connection, cached=False)


async def later(session: Annotated[str, Depends(session)]) -> str:
    await asyncio.sleep(0)
    return f"later {session}"


async def later_closed() -> AsyncIterator[str]:
    _steps.append("open later")
    yield "later"
    await asyncio.sleep(0)
    _steps.append("close later")


def call(function: Callable[..., Any], given: object, hooks: Hooks | None = None, **options: Any) -> Any:
    handler = Handler(topic="orders", group="billing", function=function, **options)
    made = make_caller(handler, hooks or Hooks(), EventLoop())(given)
    return asyncio.run(made) if asyncio.iscoroutine(made) else made


def order_and_message(order: Order, message: ReceivedMessage) -> object:
    return order, message


def message_and_order(message: ReceivedMessage, order: Order) -> object:
    return order, message


def message_by_name(order: Order, *, message: ReceivedMessage, unused: int = 3) -> object:
    return order, message


async def order_and_message_later(order: Order, message: ReceivedMessage) -> object:
    return order, message


@pytest.mark.parametrize(
    "function", [order_and_message, message_and_order, message_by_name, order_and_message_later], ids=function_name
)
def test_a_handler_gets_the_body_and_the_message_in_any_order(function: Callable[..., Any]) -> None:
    message = received(ORDER)
    assert call(function, message) == (Order(2.5), message)


def test_a_batch_handler_gets_the_bodies_and_the_messages() -> None:
    def handle(orders: list[Order], messages: list[ReceivedMessage]) -> object:
        return orders, messages

    batch = [received(ORDER), received(ORDER)]
    assert call(handle, batch, batch=Batch(2)) == ([Order(2.5)] * 2, batch)


def test_a_dependency_is_made_once_for_a_call_and_cleaned_up_behind_it(steps: list[str]) -> None:
    def handle(
        order: Order,
        session: Annotated[str, Depends(session)],
        connection: Annotated[str, Depends(connection)],
    ) -> object:
        steps.append("handle")
        return order, session, connection

    assert call(handle, received(ORDER)) == (Order(2.5), "session on connection for orders", "connection")
    assert steps == ["open", "session", "handle", "close"]


def test_a_dependency_that_is_not_cached_is_made_for_each_parameter(steps: list[str]) -> None:
    def handle(message: ReceivedMessage, one: Annotated[str, fresh], two: Annotated[str, fresh]) -> None: ...

    call(handle, received(ORDER))
    assert steps == ["open", "open", "close", "close"]


def test_a_dependency_sees_the_failure_of_the_handler(steps: list[str]) -> None:
    def handle(order: Order, connection: Annotated[str, Depends(connection)]) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        call(handle, received(ORDER))
    assert steps == ["open", "roll back", "close"]


def test_a_coroutine_depends_on_functions_of_every_kind(steps: list[str]) -> None:
    async def handle(
        order: Order, later: Annotated[str, Depends(later)], *, closed: Annotated[str, Depends(later_closed)]
    ) -> object:
        steps.append("handle")
        return order, later, closed

    assert call(handle, received(ORDER)) == (Order(2.5), "later session on connection for orders", "later")
    assert steps == ["open", "session", "open later", "handle", "close later", "close"]


def test_a_test_puts_another_function_in_the_place_of_a_dependency(steps: list[str]) -> None:
    def handle(order: Order, session: Annotated[str, Depends(session)]) -> str:
        return session

    assert call(handle, received(ORDER), Hooks(overrides={connection: lambda: "fake"})) == (
        "session on fake for orders"
    )
    assert steps == ["session"]


def test_what_needs_a_coroutine_is_refused_for_a_handler_that_is_none() -> None:
    def handle(order: Order, later: Annotated[str, Depends(later)]) -> None: ...

    with pytest.raises(HandlerError, match=r"depends on .*:later, which is async.*async def"):
        call(handle, received(ORDER))


def egg(hen: Annotated[str, "Depends(hen)"]) -> str:
    return hen


def hen(egg: Annotated[str, Depends(egg)]) -> str:
    return egg


egg.__annotations__["hen"] = Annotated[str, Depends(hen)]


def test_dependencies_that_need_each_other_are_refused() -> None:
    def handle(order: Order, egg: Annotated[str, Depends(egg)]) -> None: ...

    with pytest.raises(HandlerError, match=r"need each other: .*egg -> .*hen -> .*egg"):
        call(handle, received(ORDER))


def pool(size: int) -> None: ...


def test_a_dependency_with_an_unknown_parameter_is_refused() -> None:
    def handle(order: Order, pool: Annotated[None, Depends(pool)]) -> None: ...

    with pytest.raises(HandlerError, match=r"pool: nothing is known for its parameter 'size'"):
        call(handle, received(ORDER))


def two_bodies(order: Order, other: Order) -> None: ...
def no_message(pool: Annotated[str, Depends(connection)]) -> None: ...
def a_body_by_name(message: ReceivedMessage, *, order: Order) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (two_bodies, "nothing is known for its parameter 'other'"),
        (no_message, "it takes neither the message nor its body"),
        (a_body_by_name, "nothing is known for its parameter 'order'"),
    ],
)
def test_a_handler_that_cannot_be_called_is_refused_where_it_is_registered(
    function: Callable[..., Any], why: str
) -> None:
    with pytest.raises(HandlerError, match=f"{function.__name__}.*{why}.*def handle"):
        App(NOWHERE).handler("orders", group="billing")(function)


def test_what_is_no_function_is_no_dependency() -> None:
    with pytest.raises(HandlerError, match=r"Depends\(5\)"):
        Depends(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"order": "queue"}, {"order": "key"}, {"batch": Batch(5)}], ids=str)
def test_handlers_of_every_mode_get_their_values(place: Place, topic: str, options: dict[str, Any]) -> None:
    app, got = App(NOWHERE), list[object]()

    def alone(order: Order, message: ReceivedMessage, session: Annotated[str, Depends(connection)]) -> None:
        got.append((order.total, message.topic, session))

    async def many(
        orders: list[Order], messages: list[ReceivedMessage], session: Annotated[str, Depends(connection)]
    ) -> None:
        got.extend((order.total, message.topic, session) for order, message in zip(orders, messages, strict=True))

    app.handler(topic, group=topic, **options)(many if "batch" in options else alone)
    with Producer(place) as producer:
        for number in range(3):
            producer.send(Message(topic, Order(number)), "a key")
        with consuming(place, app):
            wait_for(lambda: len(got) == 3, "all are handled")
    assert got == [(float(number), topic, "connection") for number in range(3)]
