"""A process as fresh as a worker, which loads handlers and calls them; and handlers that it can import by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import multiprocess
from multiprocess.connection import Connection

from rmqclient.calling.arguments import arguments_of
from rmqclient.workers.handler_transfer import Transfer, load
from tests.support.received import received


def report() -> bytes:
    """Make a message of a schedule."""
    return b"report"


@dataclass(frozen=True)
class Answer:
    """What one handler returned, and where it ran."""

    topic: str
    group: str
    tags: str
    threads: int
    value: Any
    pid: int


class Shop:
    """A class with a method that has a name of its own."""

    @classmethod
    def serve(cls, message: bytes) -> tuple[str, bytes]:
        """A handler that another process finds by its name."""
        return cls.__name__, message


def remember(message: bytes) -> tuple[str, bytes]:
    """A handler that another process finds by its name."""
    return __name__, message


def answers(transfer: Transfer, body: bytes) -> list[Answer]:
    """Load ``transfer`` in a fresh process, give each handler a message with ``body``, and return what they return."""
    processes = multiprocess.get_context("forkserver")
    here, there = processes.Pipe()
    child = processes.Process(target=_answer, args=(there, transfer, body))
    with here, _without_main_module():
        child.start()
        there.close()
        try:
            answered: list[Answer] | Exception = here.recv()  # EOFError when the child dies before it answers
        finally:
            child.join()
            child.close()
    if isinstance(answered, Exception):
        raise answered
    return answered


def _answer(connection: Connection, transfer: Transfer, body: bytes) -> None:
    try:
        connection.send([_call(handler, body) for handler in load(transfer)])
    except Exception as error:  # noqa: BLE001 - it is raised again in the parent
        connection.send(error)


def _call(handler: Any, body: bytes) -> Answer:
    value = handler.function(arguments_of(handler.function).decode(received(body)))
    return Answer(handler.topic, handler.group, handler.tags, handler.threads, value, os.getpid())


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Keep the child from running this process's main module again, as the supervisor does for its workers."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
