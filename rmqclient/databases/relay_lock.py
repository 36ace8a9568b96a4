"""Relay lock: lets one relay of an outbox work at a time. The lock ends when its process dies.

==============  =====================================================================
database        the lock
==============  =====================================================================
SQLite          of a file beside the database; none for a database in memory
PostgreSQL      an advisory lock of the session
MySQL, MariaDB  a named lock of the session
==============  =====================================================================
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

Unlock: TypeAlias = Callable[[], None]
"""Ends the lock; called when the connection is closed."""

_CLASS = int.from_bytes(b"rmqo", "big")
"""First number of the advisory locks, which separates them from the locks of other programs."""


def ends_with_session() -> None:
    """Do nothing: the database ends the lock with the session."""


def numbers(table: str) -> tuple[int, int]:
    """Return the two numbers of PostgreSQL's advisory lock for a table."""
    return _CLASS, zlib.crc32(table.encode()) - 2**31  # a signed integer of 32 bits


def name(table: str) -> str:
    """Return the name of MySQL's lock for a table; at most 64 characters."""
    return f"rmq-outbox-{table}"


def file_of(databases: Iterable[Any]) -> str:
    """Return the file of SQLite's main database from ``PRAGMA database_list``; empty for one in memory."""
    return str(next(path for _, name, path in databases if name == "main") or "")


def of_file(file: str, table: str) -> Unlock | None:
    """Lock the file beside an SQLite database; None if another process, or another relay of this one, has it."""
    if not file:
        return ends_with_session  # a database in memory is for one process
    descriptor = os.open(f"{file}-{table}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return lambda: os.close(descriptor)
