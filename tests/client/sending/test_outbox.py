"""The outbox: what a row holds is sent as it was written, whatever a send of today would say of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rmqclient import Message, Outbox, Relay
from rmqclient.admin import Admin
from rmqclient.databases import relay as relay_module
from rmqclient.databases.outbox import CLAIMED, NEW, REFUSED, SENT
from rmqclient.store import MessageQueue, MessageStore
from tests.client.conftest import wait_for

NOT_UTF8 = b"\xff1"
TEXTS = ("unique_key", "topic", "body", "tags", "keys", "properties", "sharding_key")
CLOSED, OPEN = MessageQueue("closed", 0), MessageQueue("open", 0)


@pytest.mark.guarantee("G106")
@pytest.mark.parametrize("tags", ["paid || refunded", " paid", "*"])
def test_a_row_whose_tags_are_refused_by_now_is_sent(store: MessageStore, tmp_path: Path, tags: str) -> None:
    # Given a row that an earlier version wrote
    outbox = Outbox()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        outbox.create(connection)
        outbox.add(connection, Message("orders", b"7"))
        connection.execute("UPDATE rmq_outbox SET tags = ?", (tags,))
        connection.commit()

        # When it is relayed
        with Relay(store, outbox, lambda: sqlite3.connect(tmp_path / "shop.db")) as relay:
            assert relay.send() == 1

        # Then its message is there, with those tags
        (row,) = outbox.rows(connection, SENT, 2)
    (message,) = store.messages.by_key("orders", row.unique_key)
    assert message.tags == tags


@pytest.mark.guarantee("G106")
def test_rows_of_a_topic_that_is_closed_wait_in_their_order_and_hold_no_others(
    store: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given more rows for a closed topic than a relay reads at once, and one for another topic behind them
    monkeypatch.setattr(relay_module, "_CLOSED_FOR_S", 0.5)
    admin, outbox = Admin(store), Outbox()
    for topic in ("closed", "open"):
        admin.create_topic(topic, 1)
    admin.update_topic("closed", perm="r")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        outbox.create(connection)
        connection.execute("CREATE TABLE orders (id INTEGER)")
        for number in range(5):
            connection.execute("INSERT INTO orders VALUES (?)", (number,))
            outbox.add(connection, Message("closed", b"%d" % number))
        outbox.add(connection, Message("open", b"x"))
        connection.commit()

    # When they are relayed, Then the other one is sent
    relay = Relay(store, outbox, lambda: sqlite3.connect(tmp_path / "shop.db", check_same_thread=False), batch=2)
    with relay, relay.running():
        wait_for(lambda: store.topics.max_offset(OPEN) == 1, "it is sent")
        assert store.topics.max_offset(CLOSED) == 0

        # And the rows of the topic follow when it is opened
        admin.update_topic("closed", perm="rw")
        wait_for(lambda: store.topics.max_offset(CLOSED) == 5, "they are sent")
    assert [store.messages.at(CLOSED, number).body for number in range(5)] == [b"%d" % number for number in range(5)]


@pytest.mark.guarantee("G106")
@pytest.mark.parametrize("state", [NEW, CLAIMED], ids=["new", "claimed"])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("properties", "[]"),
        ("properties", "{"),
        ("properties", '{"a": 1}'),
        ("properties", '{"TIMER_DELIVER_MS": "soon"}'),
        ("properties", '{"TIMER_DELIVER_MS": "99999999999999999999999"}'),
        ("keys", "{}"),
        ("keys", "[1]"),
        ("keys", "null"),
        ("body", "text"),
        ("body", 5),
        ("body", 1 << 40),
        ("unique_key", b"key"),
        ("flag", "flag"),
        ("flag", 1 << 40),
        ("topic", "no topic"),
        ("topic", b"orders"),
        ("tags", b"paid"),
        ("sharding_key", b"7"),
        *[(column, NOT_UTF8) for column in TEXTS],
    ],
)
def test_a_row_that_is_no_message_is_refused_alone(
    store: MessageStore, tmp_path: Path, column: str, value: object, state: int
) -> None:
    # Given a row that other code has changed, perhaps behind the back of a relay that died, and a good one behind it
    outbox = Outbox()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        outbox.create(connection)
        outbox.add(connection, Message("orders", b"bad"))
        written = "CAST(? AS TEXT)" if value is NOT_UTF8 else "?"
        connection.execute(f"UPDATE rmq_outbox SET {column} = {written}, state = ?", (value, state))
        outbox.add(connection, Message("orders", b"good"))
        connection.commit()

        # When they are relayed
        with Relay(store, outbox, lambda: sqlite3.connect(tmp_path / "shop.db")) as relay:
            assert relay.send() == 2

        # Then the good one is sent, and the row of the other says why it is not
        (sent,), (refused,) = outbox.rows(connection, SENT, 9), outbox.rows(connection, REFUSED, 9)
        (reason,) = connection.execute("SELECT refusal FROM rmq_outbox WHERE id = ?", (refused.id,)).fetchone()
    (message,) = store.messages.by_key("orders", sent.unique_key)
    assert message.body == b"good"
    assert reason
