"""Columns: types that mean the same in each database, and whether a transaction is open.

The tables are those of :class:`rmqclient.Outbox` and :class:`rmqclient.Inbox`: one made by either serves the other.
"""

from __future__ import annotations

from typing import TypeAlias

from sqlalchemy import BigInteger, Connection, Integer, LargeBinary, String, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.types import TypeEngine

from rmqclient.databases.database import commits_by_itself

Sync: TypeAlias = Connection | Session | scoped_session[Session]
"""What runs statements in a transaction."""

MYSQL = ("mysql", "mariadb")
DATABASES = ("sqlite", "postgresql", *MYSQL)
LONGEST_TEXT = 255


def number() -> TypeEngine[int]:
    """Return the type of a number that the database counts up."""
    return BigInteger().with_variant(Integer(), "sqlite")


def exact() -> TypeEngine[str]:
    """Return the type of a text that can be a key, and that differs from one with other capitals."""
    return Text().with_variant(mysql.VARCHAR(LONGEST_TEXT, collation="utf8mb4_bin"), *MYSQL)


def text() -> TypeEngine[str]:
    """Return the type of a text of any length."""
    return Text().with_variant(mysql.LONGTEXT(), *MYSQL)


def short() -> TypeEngine[str]:
    """Return the type of a name or an id."""
    return Text().with_variant(String(LONGEST_TEXT), *MYSQL)


def blob() -> TypeEngine[bytes]:
    """Return the type of a body."""
    return LargeBinary().with_variant(mysql.LONGBLOB(), *MYSQL)


def connection_of(session: Sync) -> Connection:
    """Return the connection of a transaction.

    Raises ValueError for a database that these tables are not tried on, and for a connection that commits every
    statement by itself: its row would stay whatever happens later.
    """
    connection = session if isinstance(session, Connection) else session.connection()
    if connection.dialect.name not in DATABASES:
        raise ValueError(f"{connection.dialect.name}: outbox and inbox know {', '.join(DATABASES)}")
    isolation = connection.get_execution_options().get("isolation_level")
    driver = connection.connection.driver_connection
    if isolation == "AUTOCOMMIT" or (driver is not None and commits_by_itself(driver)):
        raise ValueError(
            "the connection is in no transaction and commits every statement by itself (AUTOCOMMIT): begin one, or the "
            "row stays whether your other statements succeed or not"
        )
    return connection
