"""honker: queues in a SQLite file, with a native extension that wakes consumers of other processes."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.peer import Enough, Handle, Level, Peer, Promise, Running

_AT_ONCE = 100
_WAIT_S = 0.05
_WORKER = "reader"


class Honker(Peer):
    """One queue for each topic, in one file."""

    packages: ClassVar[tuple[str, ...]] = ("honker==0.2.4",)
    delays: ClassVar[bool] = True
    name = "honker"
    title = "honker on SQLite"
    promise = Promise(Level.HOST, "at checkpoints, each 10,000 pages")
    ways = (
        "many: 100 enqueues in a transaction; consumes: claim_batch and ack_batch of 100, woken by commits; bodies are "
        "text in JSON (Base64)"
    )

    def missing(self) -> str:
        """Return nothing: the package is all."""
        return ""

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Name the file."""
        yield Running(str(home / "honker.db"), files=home)

    @contextmanager
    def session(self, address: str, topic: str, *, ordered: bool = False) -> Iterator[Jobs]:
        """Open the file."""
        import honker

        assert not ordered
        database = honker.open(address)
        try:
            yield Jobs(database, database.queue(topic))
        finally:
            database.close()


class Jobs:
    """A session."""

    def __init__(self, database: Any, queue: Any) -> None:
        self._database = database
        self._queue = queue

    def send(self, body: bytes, key: str = "") -> None:
        """Enqueue one."""
        del key
        self._queue.enqueue(_text(body))

    def send_many(self, bodies: Sequence[bytes]) -> None:
        """Enqueue in one transaction."""
        with self._database.transaction() as transaction:
            for body in bodies:
                self._queue.enqueue(_text(body), tx=transaction)

    def send_later(self, body: bytes, delay_s: float) -> None:
        """Enqueue for a later second: it knows no part of one."""
        self._queue.enqueue(_text(body), delay=delay_s)

    def settle(self) -> None:
        """Do nothing: every commit has returned."""

    def consume(self, handle: Handle, enough: Enough) -> None:
        """Claim batches; wait for a commit when there is none."""
        asyncio.run(self._claim(handle, enough))

    async def _claim(self, handle: Handle, enough: Enough) -> None:
        commits = self._database.update_events()
        while not enough():
            jobs = self._queue.claim_batch(_WORKER, _AT_ONCE)
            for job in jobs:
                handle(base64.b64decode(job.payload))
            if jobs:
                self._queue.ack_batch([job.id for job in jobs], _WORKER)
                continue
            try:
                await asyncio.wait_for(commits.__anext__(), _WAIT_S)
            except TimeoutError:
                continue


def _text(body: bytes) -> str:
    return base64.b64encode(body).decode()
