"""Database: the operations of SQLite (sqlite3) and PostgreSQL (psycopg) that the outbox and the inbox use.

A statement has ``?`` for each value and ``{table}`` for the name of the table.
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
    """The part of a DB API cursor that is used here."""

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
        """Return a cursor, which runs statements in the connection's transaction."""

    def commit(self) -> None:
        """End the transaction."""

    def rollback(self) -> None:
        """Undo the transaction."""

    def close(self) -> None:
        """End the session."""


def check_table(table: str) -> str:
    """Return ``table`` if both databases accept it as a name without quotes. Raises ValueError."""
    if not _TABLE.fullmatch(table):
        raise ValueError(f"table={table!r}: give a letter and at most 40 letters, digits or _")
    return table


def execute(connection: Connection, table: str, statement: str, values: Sequence[Any] = ()) -> Cursor:
    """Run one statement; return its cursor. Raises TypeError for a connection whose methods are coroutines."""
    if inspect.iscoroutinefunction(connection.commit):
        raise TypeError(
            f"{type(connection).__name__} has coroutines for methods: give a connection like psycopg.connect() makes"
        )
    cursor = connection.cursor()
    statement = statement.replace("{table}", table)
    cursor.execute(statement if is_sqlite(connection) else statement.replace("?", "%s"), values)
    return cursor


def is_sqlite(connection: Connection) -> bool:
    """Return whether a connection is one of sqlite3."""
    return isinstance(connection, sqlite3.Connection)


@contextmanager
def any_text(connection: object) -> Iterator[None]:
    """Let a connection of sqlite3 return texts that are not UTF-8, too; of other databases there are none.

    SQLite stores any bytes as a text. Each byte that is not UTF-8 comes as half of a surrogate pair, which no message
    can have.
    """
    if not isinstance(connection, sqlite3.Connection):
        yield
        return
    before, connection.text_factory = connection.text_factory, lambda text: text.decode("utf-8", "surrogateescape")
    try:
        yield
    finally:
        connection.text_factory = before


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """Commit at the end of the block, and roll back if it raises. Begins a transaction if none is open.

    Raises RuntimeError if a statement has failed: the database would answer a commit by a rollback.
    """
    begins = commits_by_itself(connection)
    try:
        if begins:
            execute(connection, "", "BEGIN")
        yield
        if _status(connection) == _FAILED:
            raise RuntimeError(
                "a statement of this transaction has failed, so the database can only roll back: let the error out of "
                "the block, or set a savepoint around a statement that may fail"
            )
        _end(connection, "COMMIT" if begins else None, connection.commit)
    except BaseException:
        with contextlib.suppress(Exception):  # the connection itself may have failed: then nothing is committed
            _end(connection, "ROLLBACK" if begins else None, connection.rollback)
        raise


def commits_by_itself(connection: Connection) -> bool:
    """Return whether a connection is outside of a transaction and would commit the next statement at once."""
    if isinstance(connection, sqlite3.Connection):
        # Python 3.12 and later have the attribute autocommit for it
        autocommits = connection.isolation_level is None or getattr(connection, "autocommit", None) is True
        return autocommits and not connection.in_transaction
    return bool(getattr(connection, "autocommit", False)) and _status(connection) == _IDLE


def _status(connection: Connection) -> int | None:
    """Return the transaction's status by psycopg (libpq's PQtransactionStatus); None for another connection."""
    info = getattr(connection, "info", None)
    return None if info is None else info.transaction_status


def _end(connection: Connection, statement: str | None, method: Callable[[], None]) -> None:
    """End a transaction by a statement or a method, as it was begun: with autocommit the methods do nothing."""
    if statement is None:
        method()
    else:
        execute(connection, "", statement)
