"""Ours, as a framework: handlers in worker processes that share a directory."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from benchmarks.peers.frameworks import jobs
from benchmarks.peers.frameworks.framework import KINDS, Framework, Kind
from benchmarks.peers.peer import Level, Promise, Running
from rmqclient import App, Producer
from rmqclient.consuming.push_consumer import PushConsumer

_QUEUES = 4


class RmqTasks(Framework):
    """A topic for each kind of task."""

    ours: ClassVar[bool] = True
    delays: ClassVar[bool] = True
    name = "tasks-rmq"
    title = "rmq"
    promise = Promise(Level.HOST, "twice a second")
    ways = "a handler with one thread in each worker; a message is acknowledged after its handler"

    def missing(self) -> str:
        """Return nothing."""
        return ""

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Name the directory."""
        yield Running(str(home / "store"), files=home)

    @contextmanager
    def tasks(self, address: str) -> Iterator[Application]:
        """Make the topics and the application."""
        with Producer(address) as producer:
            for kind in KINDS:
                producer.create_topic(kind, _QUEUES)
            yield Application(producer, address)


class Application:
    """Producer and handlers."""

    def __init__(self, producer: Producer, address: str) -> None:
        self._producer = producer
        self._app = App(address)
        for kind in KINDS:
            self._app.handler(kind, group="workers")(getattr(jobs, kind))
        self._address = address

    def enqueue(self, kind: Kind, argument: int) -> None:
        """Send a message whose body is JSON."""
        self._producer.send(kind, argument)

    def enqueue_later(self, kind: Kind, argument: int, delay_s: float) -> None:
        """Send a delayed message."""
        self._producer.send(kind, argument, delay=delay_s)

    def work(self) -> None:
        """Run the handlers."""
        with PushConsumer(self._address, self._app.handlers):
            signal.pause()
