"""Huey, on SQLite, where it needs no server, and on Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.frameworks import jobs
from benchmarks.peers.frameworks.framework import KINDS, Framework, Kind
from benchmarks.peers.frameworks.redis_backed import RedisBacked
from benchmarks.peers.peer import Level, Promise, Running
from benchmarks.peers.queues import redis

_PACKAGE = "huey==3.5.4"
_WAYS = (
    "one consumer with one thread in each worker; a task is taken off before it runs: that of a killed worker is lost"
)


class HueyOnSqlite(Framework):
    """Its settings are Huey's own."""

    packages: ClassVar[tuple[str, ...]] = (_PACKAGE,)
    delays: ClassVar[bool] = True
    name = "huey-sqlite"
    title = "Huey on SQLite"
    promise = Promise(Level.DISK, "at each commit")
    ways = _WAYS

    def missing(self) -> str:
        """Return nothing: the package is all."""
        return ""

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Name the file."""
        yield Running(str(home / "huey.db"), files=home)

    @contextmanager
    def tasks(self, address: str) -> Iterator[Application]:
        """Make the application."""
        import huey

        yield Application(huey.SqliteHuey("peers", filename=address, results=False))


class HueyOnRedis(RedisBacked):
    """Its settings are Huey's own."""

    packages: ClassVar[tuple[str, ...]] = (_PACKAGE, redis.CLIENT)
    delays: ClassVar[bool] = True
    name = "huey-redis"
    title = "Huey on Redis"
    ways = _WAYS

    @contextmanager
    def tasks(self, address: str) -> Iterator[Application]:
        """Make the application."""
        import huey

        yield Application(huey.RedisHuey("peers", url=f"unix://{address}", results=False))


class Application:
    """Tasks."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._tasks = {kind: application.task()(getattr(jobs, kind)) for kind in KINDS}

    def enqueue(self, kind: Kind, argument: int) -> None:
        """Call the task."""
        self._tasks[kind](argument)

    def enqueue_later(self, kind: Kind, argument: int, delay_s: float) -> None:
        """Schedule the task."""
        self._tasks[kind].schedule((argument,), delay=delay_s)

    def work(self) -> None:
        """Run a consumer."""
        self._application.create_consumer(workers=1, periodic=False).run()
