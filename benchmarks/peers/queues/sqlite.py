"""SQLite: a table in WAL mode, which is what people write themselves when they want no server."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks.peers.peer import Enough, Handle, Level, Peer, Promise, Running

_AT_ONCE = 32
_PAUSE_S = 0.001


class Sqlite(Peer):
    """A table of its own for each topic, in one file; it needs nothing that Python does not bring."""

    ways = (
        "many: 100 inserts in a transaction; consumes: 32 selected and deleted in a transaction, looks again after 1 ms"
    )

    def __init__(self, synchronous: str) -> None:
        full = synchronous == "FULL"
        self.name = "sqlite-full" if full else "sqlite"
        self.title = f"SQLite, synchronous={synchronous}"
        self.synchronous = synchronous
        self.promise = (
            Promise(Level.DISK, "at each commit") if full else Promise(Level.HOST, "at checkpoints, each 1,000 pages")
        )

    def missing(self) -> str:
        """Return nothing: Python brings it."""
        return ""

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Name the file."""
        yield Running(str(home / "messages.db"), files=home)

    @contextmanager
    def session(self, address: str, topic: str, *, ordered: bool = False) -> Iterator[Table]:
        """Open the file."""
        assert not ordered
        with closing(sqlite3.connect(address, isolation_level=None, timeout=60)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(f"PRAGMA synchronous = {self.synchronous}")
            database.execute(
                f'CREATE TABLE IF NOT EXISTS "{topic}" (number INTEGER PRIMARY KEY, tag TEXT, key TEXT, body BLOB)'
            )
            yield Table(database, topic)

    def versions(self) -> dict[str, str]:
        """Return the version of the library."""
        return {"SQLite": sqlite3.sqlite_version}


class Table:
    """A session."""

    def __init__(self, database: sqlite3.Connection, topic: str) -> None:
        self._database = database
        self._insert = f'INSERT INTO "{topic}" (tag, key, body) VALUES (?, ?, ?)'
        self._oldest = f'SELECT number, tag, key, body FROM "{topic}" ORDER BY number LIMIT {_AT_ONCE}'
        self._delete = f'DELETE FROM "{topic}" WHERE number <= ?'

    def send(self, body: bytes, key: str = "") -> None:
        """Insert one row."""
        self._database.execute(self._insert, ("created", key, body))

    def send_many(self, bodies: Sequence[bytes]) -> None:
        """Insert rows in one transaction."""
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany(self._insert, [("created", "", body) for body in bodies])
        self._database.execute("COMMIT")

    def settle(self) -> None:
        """Do nothing: every commit has returned."""

    def consume(self, handle: Handle, enough: Enough) -> None:
        """Take rows in transactions."""
        while not enough():
            self._database.execute("BEGIN IMMEDIATE")
            rows = self._database.execute(self._oldest).fetchall()
            for row in rows:
                handle(row[3])
            if rows:
                self._database.execute(self._delete, (rows[-1][0],))
            self._database.execute("COMMIT")
            if not rows:
                time.sleep(_PAUSE_S)
