"""persist-queue: its queue with acknowledgements, over SQLite."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.peer import Enough, Handle, Level, Peer, Promise, Running

_PAUSE_S = 0.001


class PersistQueue(Peer):
    """A directory for each topic."""

    packages: ClassVar[tuple[str, ...]] = ("persist-queue==1.1.0",)
    name = "persist-queue"
    title = "persist-queue on SQLite"
    promise = Promise(Level.DISK, "at each commit")
    ways = "SQLiteAckQueue; many: it has none, 100 puts; consumes: get and ack, looks again after 1 ms"

    def missing(self) -> str:
        """Return nothing: the package is all."""
        return ""

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Name the directory."""
        yield Running(str(home), files=home)

    @contextmanager
    def session(self, address: str, topic: str, *, ordered: bool = False) -> Iterator[AckQueue]:
        """Open the queue."""
        import persistqueue

        assert not ordered
        path = Path(address) / topic
        path.mkdir(exist_ok=True)  # it makes the directory, and fails when another process makes it at the same time
        queue = persistqueue.SQLiteAckQueue(str(path), multithreading=True, auto_resume=False)
        try:
            yield AckQueue(queue)
        finally:
            queue.close()


class AckQueue:
    """A session."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def send(self, body: bytes, key: str = "") -> None:
        """Put one."""
        del key
        self._queue.put(body)

    def send_many(self, bodies: Sequence[bytes]) -> None:
        """Put one by one."""
        for body in bodies:
            self._queue.put(body)

    def settle(self) -> None:
        """Do nothing: every commit has returned."""

    def consume(self, handle: Handle, enough: Enough) -> None:
        """Get one by one."""
        import persistqueue

        while not enough():
            try:
                body = self._queue.get(block=False)
            except persistqueue.Empty:
                time.sleep(_PAUSE_S)
                continue
            handle(body)
            self._queue.ack(body)
