"""Outbox: a database transaction and a send happen together or not at all, without two-phase commit.

::

    outbox = Outbox()                                  # the name of its table can be given
    outbox.create(connection)                          # once

    with connection:                                   # sqlite3; `with connection.transaction():` of psycopg
        connection.execute("UPDATE account SET ...")
        outbox.add(connection, Message("payments", b"..."))

    with Relay("./store", outbox, lambda: sqlite3.connect("shop.db")) as relay:
        relay.run(ended)                               # in any process; a second one waits for the first to end

The row exists if and only if the transaction was committed. :mod:`rmqclient.databases.relay` sends it. The table is the
same for every framework; :mod:`rmqclient.frameworks` writes and reads it through the connections of SQLAlchemy and of
Django.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson

from rmqclient.backend.around import Outgoing
from rmqclient.codecs import encode_body
from rmqclient.databases import relay_lock
from rmqclient.databases.database import (
    Connection,
    Cursor,
    any_text,
    check_table,
    commits_by_itself,
    execute,
    is_sqlite,
)
from rmqclient.databases.relay_lock import Unlock
from rmqclient.duration import Duration
from rmqclient.message import Message
from rmqclient.names import check_sharding_key, check_utf8
from rmqclient.sending.arguments import check_message
from rmqclient.sending.due_time import due_ms
from rmqclient.store import stored_message
from rmqclient.tracing.outgoing import carrying

NEW, CLAIMED, SENT, REFUSED = range(4)
"""The states of a row."""

_DUE = "TIMER_DELIVER_MS"
"""Property of a row: time at which its message is due, in ms since 1970. Applications cannot set it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = """
    unique_key TEXT NOT NULL UNIQUE, topic TEXT NOT NULL, body {bytes} NOT NULL, tags TEXT, keys TEXT NOT NULL,
    properties TEXT NOT NULL, flag INTEGER NOT NULL, sharding_key TEXT, state INTEGER NOT NULL DEFAULT 0,
    message_id TEXT, refusal TEXT
"""
_INSERT = """
    INSERT INTO {table} (unique_key, topic, body, tags, keys, properties, flag, sharding_key)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_SELECT = """
    SELECT id, unique_key, topic, body, tags, keys, properties, flag, sharding_key
    FROM {table} WHERE state = ? ORDER BY id LIMIT ?
"""


class Row(NamedTuple):
    """A message in the outbox."""

    id: int
    unique_key: str
    topic: str
    body: bytes
    tags: str | None
    keys: str
    properties: str
    flag: int
    sharding_key: str | None

    def message(self) -> Message:
        """Return the message to send, with the unique key among its keys. It was checked when the row was written.

        Raises ValueError for a row that other code wrote or changed, and that is no message.
        """
        properties = {name: value for name, value in self._properties().items() if name != _DUE}
        keys = _read("keys", self.keys)
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise ValueError(f"keys {self.keys[:80]!r}: must be a JSON list of texts")
        if not isinstance(self.unique_key, str):
            raise ValueError(f"unique_key {self.unique_key!r}: must be a text")  # noqa: TRY004 - the row is wrong
        if not isinstance(self.body, bytes | bytearray | memoryview):  # of a number, bytes() makes so many zeros
            raise ValueError(f"body {str(self.body)[:80]!r}: must be bytes")  # noqa: TRY004
        keys.append(self.unique_key)
        return stored_message(self.topic, bytes(self.body), self.tags, keys, properties or None, self.flag)

    @property
    def deliver_at(self) -> datetime | None:
        """When the message is due; None for at once. Raises ValueError as :meth:`message`."""
        due = self._properties().get(_DUE)
        try:
            return None if due is None else _EPOCH + timedelta(milliseconds=int(due))
        except OverflowError:
            raise ValueError(f"property {_DUE} {due!r}: must be a time in ms since 1970") from None

    def _properties(self) -> dict[str, str]:
        found = _read("properties", self.properties)
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise ValueError(f"properties {self.properties[:80]!r}: must be a JSON object of texts")
        return found


def _read(column: str, text: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise ValueError(f"{column} {str(text)[:80]!r}: {error}") from error


def columns_of(
    message: Message,
    sharding_key: str | None = None,
    *,
    delay: Duration | None = None,
    deliver_at: datetime | None = None,
) -> dict[str, Any]:
    """Return the values of a new row, by column, in the order of the table, with a new ``unique_key``.

    With tracing the message has the context of this call, so that the spans of the relay and the handler link to it.
    Raises MessageRejected for a body that cannot be encoded and for text that is not UTF-8, and ValueError for a time,
    as :meth:`Producer.send` does.
    """
    check_message(message, "add")
    due = due_ms(None, delay, deliver_at)
    check_sharding_key(sharding_key)
    _check_texts(message)
    message = carrying(Outgoing((message,), sharding_key, due_ms=due, is_buffered=True))
    properties = dict(message.properties or {})
    return {
        "unique_key": f"outbox-{secrets.token_hex(16)}",
        "topic": message.topic,
        "body": message.body if type(message.body) is bytes else encode_body(message.body),
        "tags": message.tags,
        "keys": orjson.dumps(message.keys).decode(),
        "properties": orjson.dumps({**properties, _DUE: str(due)} if due else properties).decode(),
        "flag": message.flag,
        "sharding_key": sharding_key,
    }


def _check_texts(message: Message) -> None:
    """Raise MessageRejected, by its name, for a text that neither a database nor a store takes."""
    check_utf8("topic", message.topic)
    check_utf8("tags", message.tags or "")
    for key in message.keys:
        check_utf8("key", key)
    for name, value in (message.properties or {}).items():
        check_utf8("property name", name)
        check_utf8(f"property {name}, value", value)


class Outbox:
    """The outbox table of one database. Each call gets a connection."""

    def __init__(self, table: str = "rmq_outbox") -> None:
        self.table = check_table(table)

    def create(self, connection: Connection) -> None:
        """Make the table if it does not exist, and commit that."""
        number = "INTEGER PRIMARY KEY AUTOINCREMENT" if is_sqlite(connection) else "BIGSERIAL PRIMARY KEY"
        columns = _COLUMNS.format(bytes="BLOB" if is_sqlite(connection) else "BYTEA")
        self.execute(connection, "CREATE TABLE IF NOT EXISTS {table}" + f" (id {number}, {columns})")
        self.execute(connection, f"CREATE INDEX IF NOT EXISTS {{table}}_waiting ON {{table}} (id) WHERE state < {SENT}")
        connection.commit()

    def add(
        self,
        connection: Connection,
        message: Message,
        sharding_key: str | None = None,
        *,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
    ) -> str:
        """Write a message in the current transaction of ``connection``; return its unique key.

        The message is sent if that transaction is committed. A ``delay``, which counts from now, and a ``deliver_at``
        are those of :meth:`rmqclient.Producer.send`. Raises ValueError for an invalid time, and outside of a
        transaction, where the row would be committed at once; and the errors of the database.
        """
        if commits_by_itself(connection):
            raise ValueError(
                "the connection is in no transaction and commits every statement by itself: begin one, or the message "
                "is sent whether your other statements succeed or not"
            )
        columns = columns_of(message, sharding_key, delay=delay, deliver_at=deliver_at)
        self.execute(connection, _INSERT, tuple(columns.values()))
        return str(columns["unique_key"])

    def forget_sent(self, connection: Connection) -> int:
        """Delete the rows that were sent, in the connection's transaction; return their number."""
        return self.execute(connection, "DELETE FROM {table} WHERE state = ?", (SENT,)).rowcount

    def rows(self, connection: Connection, state: int, limit: int) -> list[Row]:
        """Return the first ``limit`` rows in a state."""
        with any_text(connection):
            return [Row(*fields) for fields in self.execute(connection, _SELECT, (state, limit)).fetchall()]

    def mark(self, connection: Connection, row: Row, state: int, message_id: str | None, refusal: str | None) -> None:
        """Set the state of a row, and the message id or the reason of the refusal."""
        changed = "UPDATE {table} SET state = ?, message_id = ?, refusal = ? WHERE id = ?"
        self.execute(connection, changed, (state, message_id, refusal, row.id))

    def lock(self, connection: Connection) -> Unlock | None:
        """Lock the table for this relay; return the function that unlocks it. None if another relay has the lock."""
        if isinstance(connection, sqlite3.Connection):
            return relay_lock.of_file(relay_lock.file_of(connection.execute("PRAGMA database_list")), self.table)
        (row,) = self.execute(
            connection, "SELECT pg_try_advisory_lock(?, ?)", relay_lock.numbers(self.table)
        ).fetchall()
        connection.commit()
        return relay_lock.ends_with_session if row[0] else None

    def execute(self, connection: Connection, statement: str, values: Sequence[Any] = ()) -> Cursor:
        """Run one statement, with ? for values and {table}."""
        return execute(connection, self.table, statement, values)
