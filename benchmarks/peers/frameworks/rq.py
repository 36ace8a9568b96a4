"""RQ, on Redis, with the worker that does not fork for each job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from benchmarks.peers.frameworks import jobs
from benchmarks.peers.frameworks.framework import Kind
from benchmarks.peers.frameworks.redis_backed import RedisBacked
from benchmarks.peers.queues import redis


class Rq(RedisBacked):
    """Its settings are RQ's own."""

    packages: ClassVar[tuple[str, ...]] = ("rq==3.0.0", redis.CLIENT)
    name = "rq"
    title = "RQ, SimpleWorker"
    ways = "SimpleWorker, which runs jobs in its own process; the default one forks for each; results are not kept"

    @contextmanager
    def tasks(self, address: str) -> Iterator[Application]:
        """Connect."""
        import redis as library
        import rq

        with library.Redis(unix_socket_path=address) as connection:
            yield Application(rq, connection)


class Application:
    """A queue."""

    def __init__(self, library: Any, connection: Any) -> None:
        self._library = library
        self._connection = connection
        self._queue = library.Queue("peers", connection=connection)

    def enqueue(self, kind: Kind, argument: int) -> None:
        """Enqueue a job."""
        self._queue.enqueue(getattr(jobs, kind), argument, result_ttl=0)

    def work(self) -> None:
        """Work."""
        self._library.SimpleWorker([self._queue], connection=self._connection).work(logging_level="WARNING")
