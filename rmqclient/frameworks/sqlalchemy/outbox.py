"""Outbox: a message is sent if and only if the session that wrote it commits.

::

    outbox = Outbox(Base.metadata)                       # the table rmq_outbox; Alembic finds it there

    with Session(engine) as session, session.begin():
        session.add(Order(...))
        outbox.add(session, Message("orders", body))     # await outbox.add_async(session, ...) of an AsyncSession

    with outbox.relay("./store", engine).running():      # in any process; one works at a time
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Connection, Engine, Index, Integer, MetaData, Table, delete, func, insert, select, update

from rmqclient.databases import relay_lock
from rmqclient.databases.database import any_text, check_table
from rmqclient.databases.outbox import NEW, SENT, Row, columns_of
from rmqclient.databases.relay import Relay
from rmqclient.databases.relay_lock import Unlock
from rmqclient.duration import Duration
from rmqclient.frameworks.sqlalchemy.columns import DATABASES, Sync, blob, connection_of, exact, number, short, text
from rmqclient.message import Message
from rmqclient.opening import Place

if TYPE_CHECKING:  # at run time this import needs greenlet, which only applications with asyncio have
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession


class Outbox:
    """The outbox table of one database. It holds no connection: each call is given one, or a session."""

    def __init__(self, metadata: MetaData, table: str = "rmq_outbox") -> None:
        self.table = check_table(table)
        self.sql = Table(
            self.table,
            metadata,
            Column("id", number(), primary_key=True, autoincrement=True),
            Column("unique_key", exact(), nullable=False, unique=True),
            Column("topic", short(), nullable=False),
            Column("body", blob(), nullable=False),
            Column("tags", text()),
            Column("keys", text(), nullable=False),
            Column("properties", text(), nullable=False),
            Column("flag", Integer(), nullable=False),
            Column("sharding_key", text()),
            Column("state", Integer(), nullable=False, server_default=str(NEW)),
            Column("message_id", short()),
            Column("refusal", text()),
            Index(f"{self.table}_waiting", "state", "id"),
        )
        """The table, for queries and migrations of the application."""

    def add(
        self,
        session: Sync,
        message: Message,
        sharding_key: str | None = None,
        *,
        delay: Duration | None = None,
        deliver_at: Any = None,
    ) -> str:
        """Write a message in the transaction of a session or a connection; return its unique key.

        The message is sent if that transaction is committed. ``delay``, which counts from now, and ``deliver_at`` are
        those of :meth:`rmqclient.Producer.send`. Raises ValueError for a time that this refuses, for a connection that
        commits by itself, and for a database that is not supported; and what the database raises.
        """
        connection = connection_of(session)
        columns = columns_of(message, sharding_key, delay=delay, deliver_at=deliver_at)
        connection.execute(insert(self.sql).values(**columns))
        return str(columns["unique_key"])

    async def add_async(
        self,
        session: AsyncSession | AsyncConnection,
        message: Message,
        sharding_key: str | None = None,
        *,
        delay: Duration | None = None,
        deliver_at: Any = None,
    ) -> str:
        """Write a message in the transaction of an ``AsyncSession`` or an ``AsyncConnection``, as :meth:`add`."""
        return await session.run_sync(self.add, message, sharding_key, delay=delay, deliver_at=deliver_at)

    def forget_sent(self, session: Sync) -> int:
        """Delete the rows that were sent, in the transaction of ``session``; return how many."""
        return connection_of(session).execute(delete(self.sql).where(self.sql.c.state == SENT)).rowcount

    def relay(self, place: Place, engine: Engine, **options: Any) -> Relay:
        """Return what sends the messages to a store or a cluster; ``options`` are those of :class:`rmqclient.Relay`.

        It takes a connection of its own, outside of the pool. Raises TypeError for an ``AsyncEngine``: a relay is a
        thread, so give it an engine of its own by ``create_engine``.
        """
        if not isinstance(engine, Engine):
            raise TypeError(
                f"a relay works in a thread of its own and cannot use {type(engine).__name__}: give it an engine of "
                "create_engine(), with a driver that is not async"
            )
        return Relay(place, self, lambda: _alone(engine), **options)

    # --- what a relay asks ------------------------------------------------------------------------

    def rows(self, connection: Connection, state: int, limit: int) -> list[Row]:
        """Return the first ``limit`` rows in a state."""
        table = self.sql
        chosen = select(*(table.c[name] for name in Row._fields)).where(table.c.state == state)
        with any_text(connection.connection.driver_connection):
            return [Row(*found) for found in connection.execute(chosen.order_by(table.c.id).limit(limit))]

    def mark(self, connection: Connection, row: Row, state: int, message_id: str | None, refusal: str | None) -> None:
        """Set the state of a row, and the message id or the reason of the refusal."""
        changed = update(self.sql).where(self.sql.c.id == row.id)
        connection.execute(changed.values(state=state, message_id=message_id, refusal=refusal))

    def lock(self, connection: Connection) -> Unlock | None:
        """Become the only relay of the table; return what ends that. None if another relay is at work."""
        match connection.dialect.name:
            case "sqlite":
                file = relay_lock.file_of(connection.exec_driver_sql("PRAGMA database_list"))
                connection.rollback()
                return relay_lock.of_file(file, self.table)
            case "postgresql":
                asked = func.pg_try_advisory_lock(*relay_lock.numbers(self.table))
            case "mysql" | "mariadb":
                asked = func.get_lock(relay_lock.name(self.table), 0)
            case other:
                raise ValueError(f"{other}: an outbox knows {', '.join(DATABASES)}")
        is_locked = connection.execute(select(asked)).scalar_one()
        connection.commit()
        return relay_lock.ends_with_session if is_locked else None


def _alone(engine: Engine) -> Connection:
    """Return a connection that is closed at its end: the lock of a relay must not go back into a pool."""
    connection = engine.connect()
    if connection.dialect.name != "sqlite":  # a file is locked there, and a database in memory is its connection
        connection.detach()
    return connection
