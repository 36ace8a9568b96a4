"""Text that UTF-8 cannot hold: each place that takes text refuses it by its name, before anything is written."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rmqclient import Inbox, Message, Outbox, Producer, ReceivedMessage, jmespath, sql
from rmqclient.errors import FilterError, MessageRejected, StepError, StoreUnusable
from rmqclient.store import MessageStore

HALF = "\ud800"
"""The first half of a surrogate pair."""


@pytest.mark.parametrize(
    ("what", "given"),
    [
        ("sharding key", {"sharding_key": HALF}),
        ("tags", {"tags": HALF}),
        ("key", {"key": HALF}),
        ("property name", {"properties": {HALF: "x"}}),
        ("property value", {"properties": {"x": HALF}}),
    ],
)
def test_a_send_names_the_argument_and_stores_nothing(store: MessageStore, what: str, given: dict[str, Any]) -> None:
    before = store.state.published_to
    with Producer(store) as producer, pytest.raises(MessageRejected, match=f"^{what} '"):
        producer.send("orders", b"", **given)
    assert store.state.published_to == before


@pytest.mark.parametrize("body", [HALF, {"a": HALF}, {HALF: 1}, [HALF]])
def test_a_body_is_refused(store: MessageStore, body: object) -> None:
    with Producer(store) as producer, pytest.raises(MessageRejected):
        producer.send("orders", body)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("topic", Message("orders" + HALF, b"")),
        ("tags", Message("orders", b"", tags=HALF)),
        ("key", Message("orders", b"", keys=[HALF])),
        ("property name", Message("orders", b"", properties={HALF: "x"})),
        ("property x, value", Message("orders", b"", properties={"x": HALF})),
    ],
)
def test_an_outbox_refuses_it_with_the_row(what: str, message: Message) -> None:
    connection = sqlite3.connect(":memory:")
    Outbox().create(connection)
    with pytest.raises(MessageRejected, match=f"^{what} '"):
        Outbox().add(connection, message)


def test_an_inbox_refuses_it_as_a_key(store: MessageStore) -> None:
    connection = sqlite3.connect(":memory:")
    inbox = Inbox("billing")
    inbox.create(connection)
    with Producer(store) as producer:
        message: ReceivedMessage | None = store.messages.by_id(producer.send("orders", b"").message_id)
    assert message is not None
    with pytest.raises(ValueError, match=r"^key="):
        inbox.add(connection, message, key=HALF)


@pytest.mark.parametrize("expression", [f"a = '{HALF}'", HALF])
def test_filters_refuse_it(expression: str) -> None:
    for make in (sql, jmespath):
        with pytest.raises(FilterError):
            make(expression)


def test_nothing_is_found_by_it(store: MessageStore) -> None:
    with Producer(store) as producer:
        producer.send("orders", b"", key="a")
        with pytest.raises(StepError):
            producer.signal(HALF, "paid", group="billing")
    assert store.messages.by_id(HALF) is None
    assert store.messages.by_key("orders", HALF) == []


@pytest.mark.parametrize("name", [HALF, "a\0b"])
def test_no_directory_has_it_in_its_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreUnusable):
        Producer(tmp_path / name)


def test_bytes_that_are_not_utf8_may_be_in_a_path(tmp_path: Path) -> None:
    with Producer(tmp_path / "caf\udce9") as producer:  # as Python shows the byte 0xE9 of a path
        producer.send("orders", b"")
