"""PostgreSQL: a table for each topic, whose rows consumers lock with ``SKIP LOCKED``."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.peer import Enough, Handle, Level, Peer, Promise, Running
from benchmarks.peers.processes import lacking, program, server, version_of

CLIENT = "psycopg[binary]==3.3.9"
USER = "peers"
_AT_ONCE = 32
_PAUSE_S = 0.001


class PostgreSQL(Peer):
    """``synchronous_commit`` is that of its sessions."""

    packages: ClassVar[tuple[str, ...]] = (CLIENT,)
    debian: ClassVar[tuple[str, ...]] = ()
    delays: ClassVar[bool] = True
    ways = (
        "psycopg 3 on a UNIX socket; many: one INSERT of 100; consumes: 32 deleted with SKIP LOCKED in a transaction, "
        "looks again after 1 ms"
    )

    def __init__(self, synchronous_commit: str) -> None:
        durable = synchronous_commit == "on"
        self.name = "postgresql" if durable else "postgresql-async"
        self.title = f"PostgreSQL, synchronous_commit={synchronous_commit}"
        self.promise = (
            Promise(Level.DISK, "at each commit") if durable else Promise(Level.PROCESS, "within three times 200 ms")
        )
        self.synchronous_commit = synchronous_commit

    def missing(self) -> str:
        """Return whether there is no server."""
        return lacking("initdb", "postgres")

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Start a server."""
        with started(home) as running:
            yield running

    @contextmanager
    def session(self, address: str, topic: str, *, ordered: bool = False) -> Iterator[Table]:
        """Connect, and make the table."""
        import psycopg

        assert not ordered
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"SET synchronous_commit = {self.synchronous_commit}")
            connection.execute("SELECT pg_advisory_lock(1)")  # of two that make it at once one would fail
            connection.execute(
                f'CREATE TABLE IF NOT EXISTS "{topic}" (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, '
                "due timestamptz NOT NULL DEFAULT clock_timestamp(), key text, body bytea)"
            )
            connection.execute("SELECT pg_advisory_unlock(1)")
            yield Table(connection, topic)

    def versions(self) -> dict[str, str]:
        """Return the version of the server."""
        return {"server": version_of(program("postgres"), "--version")}


@contextmanager
def started(home: Path) -> Iterator[Running]:
    """Run a server with its default settings; its directory is outside of ``home`` when it must not run as root."""
    user = "postgres" if os.getuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="rmq-pg-", dir=None if user else home) as directory:
        if user:
            shutil.chown(directory, user)
        data = Path(directory, "data")
        made = [program("initdb"), "-D", str(data), "-A", "trust", "-U", USER]
        subprocess.run(made, check=True, capture_output=True, user=user, cwd=directory)
        begun_ns = time.monotonic_ns()
        command = [program("postgres"), "-D", str(data), "-k", directory, "-c", "listen_addresses="]
        ready = [program("pg_isready"), "-q", "-h", directory]
        with server(
            command,
            Path(directory),
            lambda: subprocess.run(ready, check=False).returncode == 0,
            user=user,
            end=signal.SIGQUIT,
        ) as pid:
            yield Running(f"host={directory} user={USER} dbname=postgres", (pid,), data, begun_ns)


class Table:
    """A session."""

    def __init__(self, connection: Any, topic: str) -> None:
        self._connection = connection
        self._insert = f'INSERT INTO "{topic}" (key, body) VALUES (%s, %s)'
        self._insert_many = f'INSERT INTO "{topic}" (body) SELECT unnest(%s::bytea[])'
        self._insert_later = f"INSERT INTO \"{topic}\" (body, due) VALUES (%s, clock_timestamp() + %s * interval '1 s')"
        self._take = (
            f'DELETE FROM "{topic}" WHERE id IN (SELECT id FROM "{topic}" WHERE due <= clock_timestamp() '
            f"ORDER BY id FOR UPDATE SKIP LOCKED LIMIT {_AT_ONCE}) RETURNING body"
        )

    def send(self, body: bytes, key: str = "") -> None:
        """Insert one row."""
        self._connection.execute(self._insert, (key, body), binary=True)

    def send_many(self, bodies: Sequence[bytes]) -> None:
        """Insert rows by one statement."""
        self._connection.execute(self._insert_many, (list(bodies),), binary=True)

    def send_later(self, body: bytes, delay_s: float) -> None:
        """Insert a row that is due later."""
        self._connection.execute(self._insert_later, (body, delay_s))

    def settle(self) -> None:
        """Do nothing: every commit has returned."""

    def consume(self, handle: Handle, enough: Enough) -> None:
        """Take rows in transactions."""
        while not enough():
            with self._connection.transaction():
                rows = self._connection.execute(self._take, binary=True).fetchall()
                for (body,) in rows:
                    handle(body)
            if not rows:
                time.sleep(_PAUSE_S)
