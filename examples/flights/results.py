"""Results: the handlers' counts, in SQLite, so that a flight counts once however often its message is delivered.

Delivery is at least once. A handler that was killed between its effect and its acknowledgement runs again, most likely
in another process. On a cluster a broker that dies in a send may leave two messages of one flight. So the effect is
keyed by the name of the flight, and the second delivery must find the first one's row.

**One database for each group and queue**, ``<directory>/<group>-<queue id>.sqlite``. A queue has one owner in a group
at a time, so a database has one writer at a time, and no process waits for a lock. (On a cluster, the queues of all
brokers with one hash share it, and sometimes wait.) The next owner opens the same file and finds the counts of its
predecessor. A database for each worker process would be as quick, but wrong:
the row of the first delivery would lie in the database of the dead process. One database for all would be right, but
slow: SQLite has one writer at a time and lets the others sleep. A worker that was stopped, lost its queue and wakes up
in the middle of a handler may still write beside the new owner; the busy timeout and the key make that harmless.

**One transaction for each message, no batches.** To return is to acknowledge, so a handler's effect must survive the
death of its process before that. In WAL mode a commit has handed its bytes to the kernel, where ``kill -9``
cannot reach them. ``synchronous=NORMAL`` does not flush at a commit, which would only matter to a power cut, where
SQLite then loses the last commits and the store, with its default durability, the last half second.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

_BUSY_TIMEOUT_S = 30.0

_DELAYS = """
CREATE TABLE IF NOT EXISTS delays (
    name          TEXT PRIMARY KEY,             -- of the flight
    origin        TEXT NOT NULL,
    carrier       TEXT NOT NULL,
    hour          INTEGER NOT NULL,             -- scheduled, New York time
    delay_minutes INTEGER,                      -- NULL: cancelled
    worker        INTEGER NOT NULL,             -- process id of the worker that counted it
    deliveries    INTEGER NOT NULL DEFAULT 1    -- how often the flight was delivered; it counts once
) WITHOUT ROWID
"""

_MINUTES = """
CREATE TABLE IF NOT EXISTS minutes (
    name          TEXT PRIMARY KEY,
    tail_number   TEXT,                         -- NULL: not known
    air_minutes   INTEGER,                      -- NULL: cancelled or diverted
    worker        INTEGER NOT NULL,
    deliveries    INTEGER NOT NULL DEFAULT 1
) WITHOUT ROWID
"""

_ONCE = "ON CONFLICT (name) DO UPDATE SET deliveries = deliveries + 1"

_SCHEMAS = {"delays": _DELAYS, "minutes": _MINUTES}
_INSERTS = {
    "delays": f"INSERT INTO delays VALUES (?, ?, ?, ?, ?, ?, 1) {_ONCE}",
    "minutes": f"INSERT INTO minutes VALUES (?, ?, ?, ?, 1) {_ONCE}",
}


class Results:
    """The databases of one group, written by one handler thread. Each is opened when its first message comes.

    The table of a group has the name of the group.
    """

    def __init__(self, directory: Path, group: str) -> None:
        self._directory = directory
        self._group = group
        self._worker = os.getpid()
        self._insert = _INSERTS[group]
        self._databases: dict[int, sqlite3.Connection] = {}

    def count(self, home: int, *row: str | int | None) -> None:
        """Store a row of the group's table, up to ``worker``, in a transaction of its own. Raises sqlite3.Error."""
        database = self._databases.get(home) or self._open(home)
        database.execute(self._insert, (*row, self._worker))

    def close(self) -> None:
        """Close the databases. A row that is stored later opens its own again."""
        while self._databases:
            self._databases.popitem()[1].close()

    def _open(self, home: int) -> sqlite3.Connection:
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{self._group}-{home}.sqlite"
        # None: each statement commits. Another thread may close what the handler's thread has opened.
        database = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute(_SCHEMAS[self._group])
        self._databases[home] = database
        return database


def select(directory: Path, group: str, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of ``query`` in each database of a group. Raises sqlite3.Error."""
    for path in sorted(directory.glob(f"{group}-*.sqlite")):
        with closing(sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S)) as database:
            yield from database.execute(query)
