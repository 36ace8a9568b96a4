"""Redis-backed: what the frameworks over Redis have in common: its server, on a UNIX socket, and its promise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from benchmarks.peers.frameworks.framework import Framework
from benchmarks.peers.peer import Level, Promise, Running
from benchmarks.peers.processes import lacking, program, version_of
from benchmarks.peers.queues import redis


class RedisBacked(Framework):
    """A framework over Redis with ``appendfsync everysec``; ``address`` is the path of the socket."""

    debian: ClassVar[tuple[str, ...]] = redis.DEBIAN_PACKAGES
    promise = Promise(Level.HOST, "every second")

    def missing(self) -> str:
        """Return whether there is no Redis."""
        return lacking("redis-server")

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Start Redis."""
        with redis.started(home) as running:
            yield running

    def versions(self) -> dict[str, str]:
        """Return the version of Redis."""
        return {"server": version_of(program("redis-server"), "--version")}
