"""Each call is one of its own: its context, its forked children, and the attempt that an end of its process is not."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Batch, Producer, ReceivedMessage
from rmqclient.backend import Backend
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import MessageStore
from tests.client.conftest import NOWHERE, QUICK, consuming, wait_for

tenant: contextvars.ContextVar[str | None] = contextvars.ContextVar("tenant", default=None)

MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "queue": {"order": "queue"},
    "key": {"order": "key"},
    "batch": {"batch": Batch(2)},
}


@pytest.mark.parametrize("options", MODES.values(), ids=MODES)
@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_handler_binds_in_a_context_variable_is_not_seen_by_the_next_message(
    backend: Backend, producer: Producer, options: dict[str, Any], is_async: bool
) -> None:
    # Given a handler that binds a variable
    producer.create_topic("t", 1)
    app, seen = App(NOWHERE), list[str | None]()

    def plain(messages: Any) -> None:
        seen.append(tenant.get())
        tenant.set("of the message before")

    async def coroutine(messages: Any) -> None:
        plain(messages)

    app.handler("t", group="g", **options)(coroutine if is_async else plain)

    # When it handles one message after the other, Then none sees what was bound for another one
    with consuming(backend, app):
        for number in range(3):
            producer.send("t", b"%d" % number, sharding_key="k")
            wait_for(lambda number=number: len(seen) > number, "it is handled")  # type: ignore[misc]
    assert seen == [None] * 3


@pytest.mark.parametrize(
    ("options", "is_async"), [*((each, False) for each in MODES.values()), ({}, True)], ids=[*MODES, "coroutine"]
)
def test_a_forked_child_that_returns_from_a_handler_ends_there(
    store: MessageStore, producer: Producer, tmp_path: Path, options: dict[str, Any], is_async: bool
) -> None:
    # Given a handler that forks at its first message, whose child returns
    producer.create_topic("t", 1)
    app, ended, notes = App(NOWHERE), list[int](), tmp_path / "notes"

    def plain(messages: Any) -> None:
        first = not notes.exists()
        with notes.open("a") as file:
            file.write("handled\n" * (len(messages) if isinstance(messages, list) else 1))
        if first and (child := os.fork()):
            ended.append(os.waitpid(child, 0)[1])

    async def coroutine(messages: Any) -> None:
        plain(messages)

    app.handler("t", group="g", **options)(coroutine if is_async else plain)
    for number in range(5):
        producer.send("t", b"%d" % number, sharding_key="k")

    # When the parent goes on, Then it alone handles the rest
    with consuming(store, app):
        wait_for(lambda: ended, "the child has ended")
        wait_for(lambda: notes.read_text().count("handled") == 5, "all are handled")
    assert ended == [0]
    assert notes.read_text().count("handled") == 5


@pytest.mark.parametrize("options", [{}, {"batch": Batch(2)}], ids=["plain", "batch"])
def test_a_handler_that_is_cut_off_by_the_end_of_its_process_uses_no_attempt(
    store: MessageStore, producer: Producer, options: dict[str, Any]
) -> None:
    # Given a handler that runs on when its consumer has ended
    producer.create_topic("t", 1)
    begun, going_on, attempts = threading.Event(), threading.Event(), list[int]()
    app = App(NOWHERE)

    def slow(messages: Any) -> None:
        message: ReceivedMessage = messages[0] if isinstance(messages, list) else messages
        attempts.append(message.delivery_attempt)
        begun.set()
        going_on.wait(20)

    slow.__annotations__["messages"] = list[ReceivedMessage] if options else ReceivedMessage
    app.handler("t", group="g", **options)(slow)
    consumer = PushConsumer(store, app.handlers, config=QUICK)
    consumer.start()
    producer.send("t", "x")
    assert begun.wait(10)
    assert consumer.stop(0.1) == 1

    # When another consumer gets the message
    with consuming(store, app):
        wait_for(lambda: len(attempts) == 2, "it is delivered again")
        going_on.set()

    # Then it is its first attempt
    assert attempts == [1, 1]


def test_a_coroutine_that_is_cut_off_cleans_up_before_the_lifespans_end(
    store: MessageStore, producer: Producer
) -> None:
    # Given a coroutine whose cleanup needs what a lifespan made
    app, notes, begun = App(NOWHERE), list[str](), threading.Event()

    @app.handler("t", group="g")
    async def handle(body: str) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.1)
            notes.append("cleaned up")

    @app.lifespan
    async def pool() -> Any:
        yield
        notes.append("closed")

    # When the consumer ends before the coroutine does
    consumer = PushConsumer(store, app.handlers, config=QUICK, hooks=app.hooks)
    consumer.start()
    producer.send("t", "x")
    assert begun.wait(10)
    consumer.stop(0.1)

    # Then the lifespan ends behind it
    assert notes == ["cleaned up", "closed"]
