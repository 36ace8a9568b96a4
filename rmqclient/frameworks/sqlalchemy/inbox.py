"""Inbox: a handler changes a database once, however often its message is delivered.

::

    inbox = Inbox("billing", Base.metadata)                  # the group; the table rmq_inbox

    @app.handler("payments", group="billing")
    def book(message: ReceivedMessage) -> None:
        with Session(engine) as session, inbox.once(session, message) as is_first:
            if is_first:
                session.add(Booking(...))

:mod:`rmqclient.databases.inbox` says what that promises, and how.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, Column, Index, MetaData, Table, delete, select
from sqlalchemy.dialects import mysql, postgresql, sqlite

from rmqclient.databases.database import check_table
from rmqclient.databases.inbox import identity_of
from rmqclient.frameworks.sqlalchemy.columns import LONGEST_TEXT, MYSQL, Sync, connection_of, exact
from rmqclient.message import ReceivedMessage
from rmqclient.names import check_group
from rmqclient.store import clock
from rmqclient.store.crash_points import CrashPoint, reach

if TYPE_CHECKING:  # at run time this import needs greenlet, which only applications with asyncio have
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession


class Inbox:
    """The messages that a group has handled, in one database. Groups may share a table."""

    def __init__(self, group: str, metadata: MetaData, table: str = "rmq_inbox") -> None:
        self.group = check_group(group)
        self.table = check_table(table)
        known = metadata.tables.get(self.table)
        self.sql = _declared(self.table, metadata) if known is None else known
        """The table, for queries and migrations of the application."""

    @contextmanager
    def once(self, session: Sync, message: ReceivedMessage, *, key: str | None = None) -> Iterator[bool]:
        """Tell the block whether the group handles this message for the first time, in one transaction with its work.

        The end of the block commits the session, and an exception rolls it back. Raises what the database raises, also
        for the commit, and for a statement that failed although the block went on. The handler must let these errors
        out.
        """
        try:
            yield self.add(session, message, key=key)
            reach(CrashPoint.INBOX_HANDLED)
            _check_unbroken(session)
            session.commit()
        except BaseException:
            session.rollback()
            raise
        reach(CrashPoint.INBOX_COMMITTED)

    @asynccontextmanager
    async def once_async(
        self,
        session: AsyncSession | AsyncConnection,
        message: ReceivedMessage,
        *,
        key: str | None = None,
    ) -> AsyncIterator[bool]:
        """Do the same with an ``AsyncSession`` or an ``AsyncConnection``."""
        try:
            yield await session.run_sync(self.add, message, key=key)
            await session.run_sync(_check_unbroken)
            await session.commit()
        except BaseException:
            await session.rollback()
            raise

    def add(self, session: Sync, message: ReceivedMessage, *, key: str | None = None) -> bool:
        """Write a message down in the current transaction of ``session``; return whether it was new.

        This is for a transaction that the handler ends itself, such as one for a whole batch. If another open
        transaction has written the message down, this waits for its end. Raises ValueError for a connection that
        commits by itself, for a database that is not supported, and for a ``key`` that is empty, or on MySQL longer
        than 255 characters or with spaces at its end; and what the database raises.
        """
        connection = connection_of(session)
        identity = identity_of(message, key)
        is_mysql = connection.dialect.name in MYSQL
        if is_mysql and (len(identity) > LONGEST_TEXT or identity.endswith(" ")):
            raise ValueError(
                f"key={identity[:80]!r}: give a text that all messages which count as the same have in common, on "
                f"MySQL of at most {LONGEST_TEXT} characters and without a space at its end"
            )
        row = {"group_name": self.group, "message_id": identity, "handled_at": clock.wall_ms()}
        written = connection.execute(self._insert(connection.dialect.name), row)
        reach(CrashPoint.INBOX_MARKED)
        return written.rowcount == 1

    def forget_before(self, session: Sync, moment: datetime) -> int:
        """Delete the group's rows from before a time, in the transaction of ``session``; return how many there were.

        If the message of a deleted row comes again, it is handled as new. It can come again as long as the store keeps
        it; a retry or a dead letter keeps it as long again, and a seek goes back to it.
        """
        old = delete(self.sql).where(
            self.sql.c.group_name == self.group, self.sql.c.handled_at < int(moment.timestamp() * 1_000)
        )
        return connection_of(session).execute(old).rowcount

    def _insert(self, database: str) -> Any:
        """Return a statement that inserts a row or nothing; its result says which."""
        kept: Any
        match database:
            case "sqlite":
                kept = sqlite.insert(self.sql).on_conflict_do_nothing()
            case "postgresql":
                kept = postgresql.insert(self.sql).on_conflict_do_nothing()
            case _:
                kept = mysql.insert(self.sql).prefix_with("IGNORE")
        return kept.execution_options(preserve_rowcount=True)


def _declared(table: str, metadata: MetaData) -> Table:
    return Table(
        table,
        metadata,
        Column("group_name", exact(), primary_key=True),
        Column("message_id", exact(), primary_key=True),
        Column("handled_at", BigInteger(), nullable=False),
        Index(f"{table}_old", "group_name", "handled_at"),
    )


def _check_unbroken(session: Sync) -> None:
    """Raise what PostgreSQL says of a transaction in which a statement failed: it would answer COMMIT by a rollback."""
    connection = connection_of(session)
    if connection.dialect.name == "postgresql":
        connection.execute(select(1))
