"""Celery, on Redis."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from benchmarks.peers.frameworks import jobs
from benchmarks.peers.frameworks.framework import KINDS, Kind
from benchmarks.peers.frameworks.redis_backed import RedisBacked
from benchmarks.peers.queues import redis

_QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR")


class Celery(RedisBacked):
    """Its settings are Celery's own, but for results, which are not kept, and the pool."""

    packages: ClassVar[tuple[str, ...]] = ("celery==5.7.0", redis.CLIENT)
    delays: ClassVar[bool] = True
    name = "celery"
    title = "Celery on Redis"
    ways = "the pool solo, which runs tasks in the worker's own process; acknowledged before they run, as by default"

    @contextmanager
    def tasks(self, address: str) -> Iterator[Application]:
        """Make the application."""
        import celery

        yield Application(celery.Celery("peers", broker=f"redis+socket://{address}"))


class Application:
    """Tasks."""

    def __init__(self, application: Any) -> None:
        application.conf.task_ignore_result = True
        self._application = application
        self._tasks = {kind: application.task(getattr(jobs, kind), name=kind) for kind in KINDS}

    def enqueue(self, kind: Kind, argument: int) -> None:
        """Call the task with a delay of nothing."""
        self._tasks[kind].delay(argument)

    def enqueue_later(self, kind: Kind, argument: int, delay_s: float) -> None:
        """Call the task with a countdown."""
        self._tasks[kind].apply_async((argument,), countdown=delay_s)

    def work(self) -> None:
        """Run a worker; the name must be its own."""
        self._application.worker_main(["worker", "--pool", "solo", "--hostname", f"w{os.getpid()}@%h", *_QUIET])
