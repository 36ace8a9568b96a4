"""The message that is handled: for log lines, in threads, coroutines, batches and what they start."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rmqclient import App, Batch, Message, MessageFields, Producer, ReceivedMessage, current_message
from rmqclient.calling.current import log_fields
from rmqclient.opening import Place
from tests.client.conftest import NOWHERE, QUICK, SOON, consuming, wait_for

_log = logging.getLogger("an.application")


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What the application logs, with the fields of its messages."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(shape.format(record))  # type: ignore[method-assign]
    shape = logging.Formatter("%(message_id)s %(topic)s %(group)s %(attempt)s %(message)s")
    handler.addFilter(MessageFields())
    _log.addHandler(handler)
    _log.setLevel(logging.INFO)
    yield found
    _log.removeHandler(handler)


def outside_of_a_handler() -> bool:
    return current_message() is None and log_fields() == {}


def test_a_log_line_names_the_message_topic_group_and_attempt(place: Place, topic: str, lines: list[str]) -> None:
    app = App(NOWHERE)

    @app.handler(topic, group="billing", retry=SOON)
    def handle(message: ReceivedMessage) -> None:
        _log.info("working")
        if message.delivery_attempt == 1:
            raise RuntimeError("again")

    with Producer(place) as producer:
        sent = producer.send(Message(topic, b""))
        with consuming(place, app):
            wait_for(lambda: len(lines) == 2, "the message was handled twice")
    assert lines == [f"{sent.message_id} {topic} billing {attempt} working" for attempt in (1, 2)]
    assert outside_of_a_handler()


def test_a_line_outside_of_a_handler_has_empty_fields(lines: list[str]) -> None:
    _log.info("idle")
    assert lines == ["    idle"]


def look(found: list[bool], message: ReceivedMessage) -> None:
    current = current_message()
    found.append(current is not None and current.message_id == message.message_id)


def handlers(found: list[bool]) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    def alone(message: ReceivedMessage) -> None:
        look(found, message)

    def many(messages: list[ReceivedMessage]) -> None:
        look(found, messages[0])
        found.extend([True] * (len(messages) - 1))

    async def in_turns(message: ReceivedMessage) -> None:
        await asyncio.sleep(0.001)
        await asyncio.to_thread(look, found, message)

    return {
        "thread": (alone, {"threads": 2}),
        "queue": (alone, {"order": "queue"}),
        "key": (alone, {"order": "key", "threads": 2}),
        "batch": (many, {"batch": Batch(5)}),
        "coroutines": (in_turns, {}),
        "ordered coroutines": (in_turns, {"order": "queue"}),
    }


@pytest.mark.parametrize("mode", handlers([]))
def test_the_handler_of_every_mode_knows_its_message(place: Place, topic: str, mode: str) -> None:
    found: list[bool] = []
    function, options = handlers(found)[mode]
    app = App(NOWHERE)
    app.handler(topic, group=topic, **options)(function)
    with Producer(place) as producer:
        for number in range(20):
            producer.send(Message(topic, b""), f"key {number % 3}")
        with consuming(place, app, QUICK):
            wait_for(lambda: len(found) == 20, "all are handled")
    assert all(found)


def test_a_thread_that_handles_nothing_knows_no_message(place: Place, topic: str) -> None:
    app, handled, seen = App(NOWHERE), threading.Event(), list[bool]()

    @app.handler(topic, group=topic)
    def handle(message: ReceivedMessage) -> None:
        other = threading.Thread(target=lambda: seen.append(outside_of_a_handler()))
        other.start()
        other.join()
        handled.set()

    with Producer(place) as producer:
        producer.send(Message(topic, b""))
        with consuming(place, app):
            assert handled.wait(10)
    assert seen == [True]
    assert outside_of_a_handler()
