"""Inbox: a handler changes a database once, however often its message is delivered.

::

    inbox = Inbox("billing")                                # the group; the name of the table can be given
    inbox.create(connection)                                # once

    @app.handler("payments", group="billing")
    def book(message: ReceivedMessage) -> None:
        with inbox.once(connection, message) as is_first:   # one transaction, of sqlite3 or psycopg
            if is_first:
                connection.execute("UPDATE account SET ...")

The inbox writes the group and the message id into a table of the same database, in the transaction of the handler's
own changes. So the row exists if and only if the changes do:

===========================================  ==========================================================================
the process dies, or the handler raises      result
===========================================  ==========================================================================
before the commit                            the database undoes row and changes; the next delivery does them
after the commit, before the message is      the next delivery finds the row: ``is_first`` is false, and the message is
acknowledged                                 acknowledged without any change
===========================================  ==========================================================================

If a message comes to two processes at once, as it does when a slow handler was taken for dead, the second process waits
for the transaction of the first. If the first rolls back, the second does the work. If the database ends the wait,
after the ``timeout`` of sqlite3, or finds a conflict between serializable transactions, it raises an error. Then the
handler fails, and the message is retried.

The message id is the one that the sender gave the message [UNIQ_KEY]. Retries, dead letters that are sent again,
delayed and transactional messages keep it, and so does a second copy of any record. Two sends have different ids: if
they mean the same to the application, give what they have in common as ``key``. A message of a client that gave no id
has the id of its first record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from rmqclient.databases.database import Connection, check_table, commits_by_itself, execute, is_sqlite, transaction
from rmqclient.failures.origin import origin_message_id
from rmqclient.message import ReceivedMessage
from rmqclient.names import check_group
from rmqclient.store import clock
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.texts import is_utf8

_COLUMNS = """
    group_name TEXT NOT NULL, message_id TEXT NOT NULL, handled_at BIGINT NOT NULL, PRIMARY KEY (group_name, message_id)
"""


class Inbox:
    """The messages that a group has handled, in one database. Each call gets a connection."""

    def __init__(self, group: str, table: str = "rmq_inbox") -> None:
        self.group = check_group(group)
        self.table = check_table(table)

    def create(self, connection: Connection) -> None:
        """Make the table if it does not exist, and commit that. Groups may share a table."""
        kind = " WITHOUT ROWID" if is_sqlite(connection) else ""
        execute(connection, self.table, f"CREATE TABLE IF NOT EXISTS {{table}} ({_COLUMNS}){kind}")
        execute(connection, self.table, "CREATE INDEX IF NOT EXISTS {table}_old ON {table} (group_name, handled_at)")
        connection.commit()

    @contextmanager
    def once(self, connection: Connection, message: ReceivedMessage, *, key: str | None = None) -> Iterator[bool]:
        """Open a transaction; the block gets whether the group handles this message for the first time.

        The end of the block commits, and an exception rolls back. If a transaction is already open, the block continues
        it, and it ends here, too. Raises the errors of the database, also of the commit, and RuntimeError if a
        statement failed and the block continued: then nothing can be committed. The handler must not catch these.
        """
        with transaction(connection):
            yield self.add(connection, message, key=key)
            reach(CrashPoint.INBOX_HANDLED)
        reach(CrashPoint.INBOX_COMMITTED)

    def add(self, connection: Connection, message: ReceivedMessage, *, key: str | None = None) -> bool:
        """Record a message in the current transaction of ``connection``; return whether it was new.

        This is for a transaction that the handler ends itself, such as one for a whole batch. If another open
        transaction has recorded the message, this waits for its end. Raises ValueError outside of a transaction, where
        the row would be committed at once, and for an empty ``key``; and the errors of the database.
        """
        if commits_by_itself(connection):
            raise ValueError(
                "the connection is in no transaction and commits every statement by itself: begin one, or the message "
                "counts as handled whether your other statements succeed or not"
            )
        row = (self.group, identity_of(message, key), clock.wall_ms())
        written = execute(
            connection, self.table, "INSERT INTO {table} VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row
        ).rowcount
        if written not in (0, 1):
            raise TypeError(
                f"{type(connection).__name__} does not say whether a row was inserted: rowcount is {written}"
            )
        reach(CrashPoint.INBOX_MARKED)
        return written == 1

    def forget_before(self, connection: Connection, moment: datetime) -> int:
        """Delete the group's rows from before a time, in the connection's transaction; return their number.

        If the message of a deleted row is delivered again, it is handled as new. That can happen while the store has
        it, by a seek; a retry or a dead letter stores it anew.
        """
        deleted = "DELETE FROM {table} WHERE group_name = ? AND handled_at < ?"
        return execute(connection, self.table, deleted, (self.group, int(moment.timestamp() * 1_000))).rowcount


def identity_of(message: ReceivedMessage, key: str | None = None) -> str:
    """Return the key by which a message is recorded; without one, the id that it keeps through retries and delays.

    Raises ValueError for a key that is empty or no text.
    """
    if key is not None:
        if not key or not is_utf8(key):
            raise ValueError(f"key={key!r}: give a text that all messages which count as the same have in common")
        return key
    return message.properties.get("UNIQ_KEY") or origin_message_id(message)
