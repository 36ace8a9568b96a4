"""pgmq: queues as functions of PostgreSQL, by its own client."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.peer import Enough, Handle, Level, Peer, Promise, Running
from benchmarks.peers.processes import lacking
from benchmarks.peers.queues import postgresql

_AT_ONCE = 100
_PAUSE_S = 0.001
_HIDDEN_S = 60
_LOCK = 2


class Pgmq(Peer):
    """One queue for each topic; its SQL is that of the package, without the extension."""

    packages: ClassVar[tuple[str, ...]] = ("pgmq==1.1.4", postgresql.CLIENT)
    delays: ClassVar[bool] = True
    name = "pgmq"
    title = "pgmq on PostgreSQL"
    promise = Promise(Level.DISK, "at each commit")
    ways = (
        "many: send_batch of 100; consumes: read of 100, then delete of all, looks again after 1 ms; bodies are text "
        "in JSON (Base64)"
    )

    def missing(self) -> str:
        """Return whether there is no PostgreSQL."""
        return lacking("initdb", "postgres")

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Start a server."""
        with postgresql.started(home) as running:
            yield running

    @contextmanager
    def session(self, address: str, topic: str, *, ordered: bool = False) -> Iterator[Queue]:
        """Connect, install the functions, and make the queue."""
        import psycopg
        from pgmq.install import get_embedded_install_sql

        assert not ordered
        name = topic.replace("-", "_")
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"SELECT pg_advisory_lock({_LOCK})")
            if not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'pgmq'").fetchone():
                connection.execute(get_embedded_install_sql())
            connection.execute("SELECT pgmq.create(%s)", (name,))
            connection.execute(f"SELECT pg_advisory_unlock({_LOCK})")
            yield Queue(connection, name)


class Queue:
    """A session: the SQL that the client sends, without its pool, which would cost it more."""

    def __init__(self, connection: Any, name: str) -> None:
        self._connection = connection
        self._name = name

    def send(self, body: bytes, key: str = "") -> None:
        """Send one message."""
        del key
        self.send_later(body, 0)

    def send_many(self, bodies: Sequence[bytes]) -> None:
        """Send one batch."""
        self._connection.execute(
            "SELECT * FROM pgmq.send_batch(%s, %s::text[]::jsonb[])", (self._name, [_json(body) for body in bodies])
        )

    def send_later(self, body: bytes, delay_s: float) -> None:
        """Send one message with a delay in whole seconds."""
        self._connection.execute("SELECT * FROM pgmq.send(%s, %s::jsonb, %s)", (self._name, _json(body), int(delay_s)))

    def settle(self) -> None:
        """Do nothing: every commit has returned."""

    def consume(self, handle: Handle, enough: Enough) -> None:
        """Read batches, and delete them."""
        while not enough():
            read = "SELECT msg_id, message->>'body' FROM pgmq.read(%s, %s, %s)"
            rows = self._connection.execute(read, (self._name, _HIDDEN_S, _AT_ONCE)).fetchall()
            for _, text in rows:
                handle(base64.b64decode(text))
            if rows:
                numbers = [number for number, _ in rows]
                self._connection.execute("SELECT pgmq.delete(%s, %s::bigint[])", (self._name, numbers))
            else:
                time.sleep(_PAUSE_S)


def _json(body: bytes) -> str:
    return f'{{"body": "{base64.b64encode(body).decode()}"}}'
