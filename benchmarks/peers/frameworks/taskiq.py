"""taskiq, on streams of Redis, with tasks that are coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from benchmarks.peers.frameworks import jobs
from benchmarks.peers.frameworks.framework import KINDS, Kind
from benchmarks.peers.frameworks.redis_backed import RedisBacked
from benchmarks.peers.queues import redis


class Taskiq(RedisBacked):
    """Its settings are taskiq's own, but for one task at a time in each worker."""

    packages: ClassVar[tuple[str, ...]] = ("taskiq==0.13.0", "taskiq-redis==1.2.4", redis.CLIENT)
    name = "taskiq"
    title = "taskiq on Redis Streams"
    ways = "one coroutine at a time in each worker; it calls the function, so a task of 1 ms holds up its loop"

    @contextmanager
    def tasks(self, address: str) -> Iterator[Application]:
        """Make the broker and its tasks."""
        from taskiq_redis import RedisStreamBroker

        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        broker = RedisStreamBroker(url=f"unix://{address}")
        yield Application(loop, broker)


class Application:
    """Tasks, and the loop that they are called in."""

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Any) -> None:
        self._loop = loop
        self._broker = broker
        self._tasks = {kind: broker.register_task(_coroutine(getattr(jobs, kind)), task_name=kind) for kind in KINDS}
        self._started = False

    def enqueue(self, kind: Kind, argument: int) -> None:
        """Kick the task."""
        if not self._started:
            self._started = True
            self._loop.run_until_complete(self._broker.startup())
        self._loop.run_until_complete(self._tasks[kind].kiq(argument))

    def work(self) -> None:
        """Receive tasks."""
        from taskiq.api import run_receiver_task

        self._broker.is_worker_process = True
        self._loop.run_until_complete(run_receiver_task(self._broker, max_async_tasks=1, run_startup=True))


def _coroutine(function: Callable[[int], None]) -> Callable[[int], Coroutine[Any, Any, None]]:
    async def call(argument: int) -> None:
        function(argument)

    return call
