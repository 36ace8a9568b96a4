"""What outbox and inbox ask of a database: SQLite by sqlite3, PostgreSQL by psycopg.

Statements are written with ``?`` for a value and ``{table}`` for the name of the table.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

_TABLE = re.compile("[A-Za-z_][A-Za-z0-9_]{0,40}")
_IDLE, _FAILED = 0, 3
"""PQTRANS_IDLE and PQTRANS_INERROR."""


class Cursor(Protocol):
    """What is used of a cursor of the DB API."""

    @property
    def rowcount(self) -> int:
        """Rows that the last statement changed."""

    def execute(self, statement: Any, values: Sequence[Any] = ..., /) -> Any:
        """Run a statement."""

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""


class Connection(Protocol):
    """A connection of sqlite3 or psycopg."""

    def cursor(self) -> Cursor:
        """Return what runs statements in the connection's transaction."""

    def commit(self) -> None:
        """End the transaction."""

    def rollback(self) -> None:
        """Undo the transaction."""

    def close(self) -> None:
        """End the session."""


def check_table(table: str) -> str:
    """Return a name that a table can have in both databases without quotes. Raises ValueError."""
    if not _TABLE.fullmatch(table):
        raise ValueError(f"table={table!r}: give a letter and at most 40 letters, digits or _")
    return table


def execute(connection: Connection, table: str, statement: str, values: Sequence[Any] = ()) -> Cursor:
    """Run one statement; return its cursor. Raises TypeError for a connection that is to be awaited."""
    if inspect.iscoroutinefunction(connection.commit):
        raise TypeError(
            f"{type(connection).__name__} is to be awaited: give a connection that is not, as psycopg.connect()"
        )
    cursor = connection.cursor()
    statement = statement.replace("{table}", table)
    cursor.execute(statement if is_sqlite(connection) else statement.replace("?", "%s"), values)
    return cursor


def is_sqlite(connection: Connection) -> bool:
    """Tell whether a connection is one of sqlite3."""
    return isinstance(connection, sqlite3.Connection)


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """Commit at the end of the block what it has done, or undo it; begin a transaction unless there is one.

    Raises RuntimeError instead of a commit that the database would turn into its opposite.
    """
    begins = commits_by_itself(connection)
    try:
        if begins:
            execute(connection, "", "BEGIN")
        yield
        if _status(connection) == _FAILED:
            raise RuntimeError(
                "a statement of this transaction has failed, and so the database can only undo it: let the error out "
                "of the block, or set a savepoint around what may fail"
            )
        _end(connection, "COMMIT" if begins else None, connection.commit)
    except BaseException:
        with contextlib.suppress(Exception):  # the connection may be what has failed; nothing is committed then
            _end(connection, "ROLLBACK" if begins else None, connection.rollback)
        raise


def commits_by_itself(connection: Connection) -> bool:
    """Tell whether a connection is in no transaction, and the next statement would be committed at once."""
    if isinstance(connection, sqlite3.Connection):
        # The second is how Python 3.12 and later say it
        is_told_to = connection.isolation_level is None or getattr(connection, "autocommit", None) is True
        return is_told_to and not connection.in_transaction
    return bool(getattr(connection, "autocommit", False)) and _status(connection) == _IDLE


def _status(connection: Connection) -> int | None:
    """Return what psycopg knows of the transaction (libpq's PQtransactionStatus); None of another connection."""
    info = getattr(connection, "info", None)
    return None if info is None else info.transaction_status


def _end(connection: Connection, statement: str | None, method: Callable[[], None]) -> None:
    """End a transaction as it was begun: methods of a connection can do nothing when it commits by itself."""
    if statement is None:
        method()
    else:
        execute(connection, "", statement)
