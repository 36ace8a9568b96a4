"""Inbox: what a handler does to a database is done once, however often its message comes.

::

    inbox = Inbox("billing")                                # the group; the name of the table can be given
    inbox.create(connection)                                # once

    @app.handler("payments", group="billing")
    def book(message: ReceivedMessage) -> None:
        with inbox.once(connection, message) as is_first:   # one transaction, of sqlite3 or psycopg
            if is_first:
                connection.execute("UPDATE account SET ...")

The message goes into a table of the same database, by group and message id, in the transaction of the handler's own
changes. So the row is there if and only if the changes are:

===========================================  ==========================================================================
the process dies, or the handler raises      then
===========================================  ==========================================================================
before the commit                            the database undoes row and changes; the next delivery does them
after the commit, before the message is      the next delivery finds the row: ``is_first`` is false, the message is
acknowledged                                 acknowledged and nothing done
===========================================  ==========================================================================

A message that comes to two processes at once, as after a handler was taken for dead, makes the second one wait for the
first one's transaction, and do what that did not. A wait that the database ends, after ``timeout`` of sqlite3, raises
its error, as does a conflict that a serializable transaction has; the handler then fails, and the message comes again.

The message id is the one that the sender gave the message [UNIQ_KEY]. Retries, dead letters that are sent again,
delayed and transactional messages keep it, and so does a second copy of any record. What two sends have in common only
the application knows: give it as ``key``. A message of a client that gave no id has that of its first record.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from rmqclient.databases.database import Connection, check_table, commits_by_itself, execute, is_sqlite, transaction
from rmqclient.failures.retry import origin_message_id
from rmqclient.message import ReceivedMessage
from rmqclient.names import check_group
from rmqclient.store.crash_points import CrashPoint, reach

_COLUMNS = """
    group_name TEXT NOT NULL, message_id TEXT NOT NULL, handled_at BIGINT NOT NULL, PRIMARY KEY (group_name, message_id)
"""


class Inbox:
    """The messages that a group has handled, in one database. Holds no connection: each call gets one."""

    def __init__(self, group: str, table: str = "rmq_inbox") -> None:
        self.group = check_group(group)
        self.table = check_table(table)

    def create(self, connection: Connection) -> None:
        """Make the table unless it is there, and commit that. Groups may share it."""
        kind = " WITHOUT ROWID" if is_sqlite(connection) else ""
        execute(connection, self.table, f"CREATE TABLE IF NOT EXISTS {{table}} ({_COLUMNS}){kind}")
        execute(connection, self.table, "CREATE INDEX IF NOT EXISTS {table}_old ON {table} (group_name, handled_at)")
        connection.commit()

    @contextmanager
    def once(self, connection: Connection, message: ReceivedMessage, *, key: str | None = None) -> Iterator[bool]:
        """Open a transaction that gives whether the group handles this message for the first time.

        The end of the block commits it, an exception undoes it. A transaction that is open already is gone on with and
        ends here, too. Raises what the database raises, also for the commit, and RuntimeError when a statement has
        failed and the block went on: nothing can be committed then. The handler must raise these as well.
        """
        with transaction(connection):
            yield self.add(connection, message, key=key)
            reach(CrashPoint.INBOX_HANDLED)
        reach(CrashPoint.INBOX_COMMITTED)

    def add(self, connection: Connection, message: ReceivedMessage, *, key: str | None = None) -> bool:
        """Write a message down in the present transaction of ``connection``; tell whether it was not there.

        For a transaction that the handler ends, such as one for a whole batch. Waits for another transaction that has
        written it down and not ended. Raises ValueError outside of a transaction, where the row would be there whatever
        comes later, and for an empty ``key``; and what the database raises.
        """
        if commits_by_itself(connection):
            raise ValueError(
                "the connection is in no transaction and commits every statement by itself: begin one, or the message "
                "counts as handled whether your other statements succeed or not"
            )
        if key == "":
            raise ValueError("key='': give what this message has in common with those that are to count as the same")
        row = (self.group, identity_of(message) if key is None else key, time.time_ns() // 1_000_000)
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
        """Delete the group's rows from before a time, in the connection's transaction; return how many.

        A message whose row is gone is handled as a new one if it comes again. It can as long as the store keeps it,
        as a retry or a dead letter for as long again each, and by a seek.
        """
        deleted = "DELETE FROM {table} WHERE group_name = ? AND handled_at < ?"
        return execute(connection, self.table, deleted, (self.group, int(moment.timestamp() * 1_000))).rowcount


def identity_of(message: ReceivedMessage) -> str:
    """Return what a message is known by through retries, dead letters and delays."""
    return message.properties.get("UNIQ_KEY") or origin_message_id(message)
