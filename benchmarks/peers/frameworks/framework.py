"""Framework: a peer whose users write tasks: what is put in, and what a worker process is."""

from __future__ import annotations

import abc
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from benchmarks.peers.peer import Row

Kind = Literal["noop", "short", "stamp"]
KINDS: tuple[Kind, ...] = ("noop", "short", "stamp")
"""The names of the tasks, which are the functions of :mod:`benchmarks.peers.frameworks.jobs`."""


class Tasks(Protocol):
    """The application, as the framework's users write it: the same in clients and workers."""

    def enqueue(self, kind: Kind, argument: int) -> None:
        """Put in one task; return when the framework has answered."""

    def work(self) -> None:
        """Be a worker that runs one task at a time, until the process is killed."""


class SchedulesTasks(Tasks, Protocol):
    """An application whose framework runs tasks later."""

    def enqueue_later(self, kind: Kind, argument: int, delay_s: float) -> None:
        """Put in one task that is to run after so many seconds."""


class Framework(Row):
    """A framework of tasks. If it ``delays``, its applications have ``enqueue_later``."""

    @abc.abstractmethod
    def tasks(self, address: str) -> AbstractContextManager[Tasks]:
        """Make the application."""
