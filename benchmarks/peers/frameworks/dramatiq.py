"""Dramatiq, on Redis."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from benchmarks.peers.frameworks import jobs
from benchmarks.peers.frameworks.framework import KINDS, Kind
from benchmarks.peers.frameworks.redis_backed import RedisBacked
from benchmarks.peers.queues import redis


class Dramatiq(RedisBacked):
    """Its settings are Dramatiq's own, but for one thread in each worker."""

    packages: ClassVar[tuple[str, ...]] = ("dramatiq==2.2.1", redis.CLIENT)
    delays: ClassVar[bool] = True
    name = "dramatiq"
    title = "Dramatiq on Redis"
    ways = "one thread in each worker"

    @contextmanager
    def tasks(self, address: str) -> Iterator[Application]:
        """Make the broker and the actors."""
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker

        broker = RedisBroker(url=f"unix://{address}")
        dramatiq.set_broker(broker)
        yield Application(dramatiq, broker)


class Application:
    """Actors."""

    def __init__(self, library: Any, broker: Any) -> None:
        self._library = library
        self._broker = broker
        self._actors = {kind: library.actor(getattr(jobs, kind)) for kind in KINDS}

    def enqueue(self, kind: Kind, argument: int) -> None:
        """Send to the actor."""
        self._actors[kind].send(argument)

    def enqueue_later(self, kind: Kind, argument: int, delay_s: float) -> None:
        """Send to the actor with a delay."""
        self._actors[kind].send_with_options(args=(argument,), delay=int(delay_s * 1000))

    def work(self) -> None:
        """Run a worker."""
        self._library.Worker(self._broker, worker_threads=1).start()
        signal.pause()
