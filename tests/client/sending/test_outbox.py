"""The outbox: what a row holds is sent as it was written, whatever a send of today would say of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rmqclient import Message, Outbox, Relay
from rmqclient.databases.outbox import SENT
from rmqclient.store import MessageStore


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
