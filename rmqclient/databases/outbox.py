"""Outbox: a database transaction and a send happen together or not at all, without two-phase commit.

::

    outbox = Outbox()                                  # the name of its table can be given
    outbox.create(connection)                          # once

    with connection:                                   # sqlite3; `with connection.transaction():` of psycopg
        connection.execute("UPDATE account SET ...")
        outbox.add(connection, Message("payments", b"..."))

    with Relay("./store", outbox, lambda: sqlite3.connect("shop.db")) as relay:
        relay.run(ended)                               # in any process; a second one waits for the first to end

The row exists if and only if the transaction was committed. One relay at a time handles the rows, in three steps, and
can be killed anywhere:

=================  ====================================  ==============================================================
step               what the database then says           what the next relay does with the row
=================  ====================================  ==============================================================
claim, committed   ``state`` 1: it may have been sent    looks in the store for a message with the row's unique key:
                                                         if it finds one, it marks the row; otherwise it frees the row
send, flushed      the same                              the same
mark, committed    ``state`` 2, with its message id      nothing
=================  ====================================  ==============================================================

So each row is sent once. The unique key, ``outbox-`` and 32 digits, is one of the message's keys, so a handler can
recognise the message by it, too. If the store refuses a message for good, its row gets state 3 and the reason.

This rests on three facts. The lock of a relay ends when its process dies: a lock of the file beside an SQLite database,
an advisory lock of a PostgreSQL session. An append that a death interrupted is settled before the message is looked
for. And the row is marked only when the message is on disk. Rows are sent in the order of their numbers. With
PostgreSQL that is the order in which transactions wrote them, which can differ from the order of their commits.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import sqlite3
import threading
import zlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import orjson

from rmqclient.backend.around import Outgoing
from rmqclient.codecs import encode_body
from rmqclient.databases.database import Connection, Cursor, check_table, commits_by_itself, execute, is_sqlite
from rmqclient.duration import Duration, in_seconds
from rmqclient.message import Message, SendResult
from rmqclient.names import OUTBOX_GROUP
from rmqclient.opening import Place, open_backend
from rmqclient.sending.compressor import OVER_BYTES
from rmqclient.sending.producer import Producer
from rmqclient.store.bodies import Compression
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import MessageRejected
from rmqclient.store.log.query import END_OF_TIME
from rmqclient.tracing.observers import observers_of_table
from rmqclient.tracing.outgoing import observed_send

_log = logging.getLogger(__name__)

_NEW, _CLAIMED, _SENT, _REFUSED = range(4)
_LOCK_CLASS = int.from_bytes(b"rmqo", "big")
"""First half of the advisory locks of this module, which keeps them apart from the locks of other programs."""
_FIELDS = "id, unique_key, topic, body, tags, keys, properties, flag, sharding_key"
_COLUMNS = """
    unique_key TEXT NOT NULL UNIQUE, topic TEXT NOT NULL, body {bytes} NOT NULL, tags TEXT, keys TEXT NOT NULL,
    properties TEXT NOT NULL, flag INTEGER NOT NULL, sharding_key TEXT, state INTEGER NOT NULL DEFAULT 0,
    message_id TEXT, refusal TEXT
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
        """Return the message to send, with the unique key among its keys."""
        return Message(
            self.topic,
            bytes(self.body),
            tags=self.tags,
            keys=[*orjson.loads(self.keys), self.unique_key],
            properties=orjson.loads(self.properties) or None,
            flag=self.flag,
        )


class Outbox:
    """The outbox table of one database. It holds no connection: each call is given one."""

    def __init__(self, table: str = "rmq_outbox") -> None:
        self.table = check_table(table)

    def create(self, connection: Connection) -> None:
        """Make the table if it does not exist, and commit that."""
        number = "INTEGER PRIMARY KEY AUTOINCREMENT" if is_sqlite(connection) else "BIGSERIAL PRIMARY KEY"
        columns = _COLUMNS.format(bytes="BLOB" if is_sqlite(connection) else "BYTEA")
        self.execute(connection, "CREATE TABLE IF NOT EXISTS {table}" + f" (id {number}, {columns})")
        self.execute(
            connection, f"CREATE INDEX IF NOT EXISTS {{table}}_waiting ON {{table}} (id) WHERE state < {_SENT}"
        )
        connection.commit()

    def add(self, connection: Connection, message: Message, sharding_key: str | None = None) -> str:
        """Write a message in the current transaction of ``connection``; return its unique key.

        The message is sent if that transaction is committed. With tracing it carries the context of this call, so the
        relay's send and the handler lead here. Raises ValueError outside of a transaction, because the
        message would be sent whatever happens later, and what the database raises.
        """
        if commits_by_itself(connection):
            raise ValueError(
                "the connection is in no transaction and commits every statement by itself: begin one, or the message "
                "is sent whether your other statements succeed or not"
            )
        unique_key = f"outbox-{secrets.token_hex(16)}"

        def insert(messages: Sequence[Message]) -> list[SendResult]:
            self._insert(connection, unique_key, messages[0], sharding_key)
            return []

        outgoing = Outgoing((message,), sharding_key, is_buffered=True)
        observed_send(insert, outgoing, observers_of_table())(outgoing.messages)
        return unique_key

    def forget_sent(self, connection: Connection) -> int:
        """Delete the rows that were sent, in the connection's transaction; return how many."""
        return self.execute(connection, "DELETE FROM {table} WHERE state = ?", (_SENT,)).rowcount

    def rows(self, connection: Connection, state: int, limit: int) -> list[Row]:
        """Return the first ``limit`` rows in a state."""
        chosen = "SELECT {fields} FROM {table} WHERE state = ? ORDER BY id LIMIT ?"
        return [Row(*fields) for fields in self.execute(connection, chosen, (state, limit)).fetchall()]

    def mark(self, connection: Connection, row: Row, state: int, message_id: str | None, refusal: str | None) -> None:
        """Set the state of a row, and the message id or the reason of the refusal."""
        changed = "UPDATE {table} SET state = ?, message_id = ?, refusal = ? WHERE id = ?"
        self.execute(connection, changed, (state, message_id, refusal, row.id))

    def execute(self, connection: Connection, statement: str, values: Sequence[Any] = ()) -> Cursor:
        """Run one statement, with ? for values, {table} and {fields}."""
        return execute(connection, self.table, statement.replace("{fields}", _FIELDS), values)

    def _insert(self, connection: Connection, unique_key: str, message: Message, sharding_key: str | None) -> None:
        values = (
            unique_key,
            message.topic,
            message.body if type(message.body) is bytes else encode_body(message.body),
            message.tags,
            orjson.dumps(message.keys).decode(),
            orjson.dumps(message.properties or {}).decode(),
            message.flag,
            sharding_key,
        )
        self.execute(
            connection,
            "INSERT INTO {table} (unique_key, topic, body, tags, keys, properties, flag, sharding_key) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        )


class Relay:
    """Sends the messages of an outbox; a context manager. ``connect`` opens a connection for the relay alone.

    ``root`` is the directory of a store or an open store. Bodies are compressed as by :class:`Producer`.
    """

    def __init__(
        self,
        root: Place,
        outbox: Outbox,
        connect: Callable[[], Connection],
        *,
        batch: int = 100,
        interval: Duration = 0.1,
        compression: Compression | None = None,
        compress_over_bytes: int = OVER_BYTES,
        compression_level: int | None = None,
    ) -> None:
        self._interval_s = in_seconds("interval", interval)
        if batch < 1 or self._interval_s == 0:
            raise ValueError(f"batch={batch}, interval={interval!r}: must be positive")
        self._backend = open_backend(root)
        try:
            self._flusher = self._backend.sender(self._backend.queues, prepare=False)
            self._producer = Producer(
                self._backend,
                group=OUTBOX_GROUP,
                compression=compression,
                compress_over_bytes=compress_over_bytes,
                compression_level=compression_level,
            )
        except BaseException:
            self._backend.close()
            raise
        self._outbox = outbox
        self._connect = connect
        self._batch = batch
        self._connection: Connection | None = None
        self._lock: _Lock | None = None
        self._is_settled = False

    def run(self, ended: threading.Event) -> None:
        """Send messages as they come, until ``ended`` is set. Failures are logged and retried."""
        while not ended.is_set():
            try:
                sent = self.send()
            except Exception:  # noqa: BLE001 - a database has errors of its own
                _log.exception("outbox %s: trying again", self._outbox.table)
                sent = 0
            if not sent:
                ended.wait(self._interval_s)

    def send(self) -> int:
        """Send one batch; return how many rows were handled: 0 when no row waits or another relay is at work.

        Raises what the database raises and what a send raises. The rows then wait for the next call.
        """
        try:
            connection = self._connected()
            if connection is None:
                return 0
            if not self._is_settled:
                self._settle(connection)
            return self._send_batch(connection)
        except BaseException:
            self._leave()
            raise

    def close(self) -> None:
        """Leave the database and the store."""
        self._leave()
        self._producer.close()
        self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send_batch(self, connection: Connection) -> int:
        rows = self._outbox.rows(connection, _NEW, self._batch)
        if not rows:
            connection.rollback()
            return 0
        for row in rows:
            self._outbox.mark(connection, row, _CLAIMED, None, None)
        connection.commit()
        reach(CrashPoint.OUTBOX_CLAIMED)
        sent = [(row, self._send(row)) for row in rows]
        flushed_to = max((result.commit_log_end for _, result in sent if isinstance(result, SendResult)), default=0)
        self._flusher.wait_until_flushed(flushed_to)
        reach(CrashPoint.OUTBOX_SENT)
        for row, result in sent:
            if isinstance(result, SendResult):
                self._outbox.mark(connection, row, _SENT, result.message_id, None)
            else:
                self._outbox.mark(connection, row, _REFUSED, None, str(result))
        connection.commit()
        return len(rows)

    def _send(self, row: Row) -> SendResult | Exception:
        try:
            return self._producer.send(row.message(), row.sharding_key)
        except (MessageRejected, ValueError) as error:  # an InvalidName is one
            _log.error("outbox %s: row %d can never be sent: %s", self._outbox.table, row.id, error)
            return error

    def _settle(self, connection: Connection) -> None:
        """Find out which claimed rows were sent, after a relay died or failed before it marked them."""
        self._backend.settle()
        while rows := self._outbox.rows(connection, _CLAIMED, self._batch):
            flushed_to = 0
            for row in rows:
                found = self._backend.messages_by_key(row.topic, row.unique_key, 0, END_OF_TIME, 1)
                if found:
                    flushed_to = max(flushed_to, found[0].commit_log_offset + found[0].size)
                    self._outbox.mark(connection, row, _SENT, found[0].message_id, None)
                else:
                    self._outbox.mark(connection, row, _NEW, None, None)
            self._flusher.wait_until_flushed(flushed_to)
            connection.commit()
        connection.rollback()
        self._is_settled = True

    def _connected(self) -> Connection | None:
        """Return the connection if this relay is the one at work, else None."""
        if self._connection is None:
            connection = self._connect()
            try:
                lock = _lock_of(self._outbox, connection)
            except BaseException:
                connection.close()
                raise
            if lock is None:
                connection.close()
                return None
            self._connection, self._lock = connection, lock
        return self._connection

    def _leave(self) -> None:
        connection, lock, self._connection, self._lock = self._connection, self._lock, None, None
        self._is_settled = False
        if connection is not None:
            with contextlib.suppress(Exception):  # it may be what has failed; it is closed either way
                connection.rollback()
            with contextlib.suppress(Exception):
                connection.close()
        if lock is not None:
            lock()


_Lock = Callable[[], None]


def _lock_of(outbox: Outbox, connection: Connection) -> _Lock | None:
    """Become the only relay; return what ends that after the connection is closed. None if another relay is at work."""
    if isinstance(connection, sqlite3.Connection):
        return _lock_beside(outbox, connection)
    number = zlib.crc32(outbox.table.encode()) - 2**31  # a signed integer of 32 bits
    (row,) = outbox.execute(connection, "SELECT pg_try_advisory_lock(?, ?)", (_LOCK_CLASS, number)).fetchall()
    connection.commit()
    return (lambda: None) if row[0] else None  # it ends with the session


def _lock_beside(outbox: Outbox, connection: sqlite3.Connection) -> _Lock | None:
    file = next(path for _, name, path in connection.execute("PRAGMA database_list") if name == "main")
    if not file:
        return lambda: None  # a database in memory is for one process
    descriptor = os.open(f"{file}-{outbox.table}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return lambda: os.close(descriptor)
