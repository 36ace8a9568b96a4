"""Peer: a queue or a broker beside which we are measured: what it promises, how it is started, what its clients do.

These classes travel to child processes that run in the environment of the peers, so this module and those of
``queues`` import nothing but the standard library before a client is made.
"""

from __future__ import annotations

import abc
import enum
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

Handle = Callable[[bytes], object]
Enough = Callable[[], bool]


class Level(enum.Enum):
    """What an answered send survives; the later, the more."""

    PROCESS = "the client's end"  #: the server's memory has it, and is lost with the server
    HOST = "kill -9"  #: the kernel has it, and is lost with the power
    DISK = "a power cut"  #: it was flushed before the answer

    @property
    def rank(self) -> int:
        """The more, the stronger."""
        return list(Level).index(self)


@dataclass(frozen=True, slots=True)
class Promise:
    """What a row promises of a send that has been answered."""

    level: Level
    flush: str
    """When the bytes are flushed to the disk."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs, or the place of a peer that needs none."""

    address: str
    """What a client is given: ``host:port``, a URL or a path."""
    pids: tuple[int, ...] = ()
    files: Path | None = None
    """The directory of its data."""
    begun_ns: int = 0
    """When it was started, of CLOCK_MONOTONIC, if making its empty store is no part of that."""


class Session(Protocol):
    """What one client does. Made in a child, used by one thread."""

    def send(self, body: bytes, key: str = "") -> None:
        """Send one message; return when the peer has answered."""

    def send_many(self, bodies: Sequence[bytes]) -> None:
        """Send a hundred messages in the way that the peer's users send many."""

    def settle(self) -> None:
        """Return when everything that was sent has been answered."""

    def consume(self, handle: Handle, enough: Enough) -> None:
        """Hand messages to ``handle`` and acknowledge them, until ``enough``."""


class SendsLater(Session, Protocol):
    """A session of a peer that delivers at a later time."""

    def send_later(self, body: bytes, delay_s: float) -> None:
        """Send one message that is handed out after so many seconds."""


class Row(abc.ABC):
    """A row of the tables: what it is, what it promises, and how its server is started."""

    ours: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ()
    """What pip installs for its client."""
    debian: ClassVar[tuple[str, ...]] = ()
    """Packages of Debian that are unpacked beside, when their programs are not on the machine."""
    delays: ClassVar[bool] = False
    """Whether its clients can send for a later time."""

    name: str
    """By which it is chosen: ``redis``, ``redis-always``."""
    title: str
    promise: Promise
    ways: str
    """How it sends many, and how it consumes."""

    @abc.abstractmethod
    def missing(self) -> str:
        """Return why it cannot be measured here; empty if it can."""

    @abc.abstractmethod
    def running(self, home: Path) -> AbstractContextManager[Running]:
        """Start its server over an empty store in ``home``; ready when clients can come."""

    def versions(self) -> dict[str, str]:
        """Return the versions of its programs that it can tell: ``{"redis-server": "7.0.15"}``."""
        return {}


class Peer(Row):
    """A queue or a broker. If it ``delays``, its sessions have ``send_later``."""

    orders_keys: ClassVar[bool] = False
    """Whether several consumers of a session share the keys, and each key keeps its order."""

    @abc.abstractmethod
    def session(self, address: str, topic: str, *, ordered: bool = False) -> AbstractContextManager[Session]:
        """Open a client; the topic is made if it does not exist. ``ordered``: keys keep their order."""

    def stored_bytes(self, running: Running) -> int:
        """Return what its data takes on the disk: blocks that files hold."""
        return blocks(running.files) if running.files else 0


class WithProgram(Peer):
    """A peer whose client is no Python: a program of its own does the work."""

    @abc.abstractmethod
    def works(self, bench: Any) -> dict[str, Callable[[], None]]:
        """Return what can be measured of it, by name; ``bench`` is a :class:`.workloads.bench.Bench`."""

    def session(self, address: str, topic: str, *, ordered: bool = False) -> AbstractContextManager[Session]:
        """Raise TypeError: no session can be opened."""
        raise TypeError(f"{self.title} has no client in Python: {address}, {topic}, {ordered}")


def blocks(directory: Path) -> int:
    """Return the bytes of all blocks that the files below a directory hold."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += (Path(folder) / name).lstat().st_blocks * 512
            except FileNotFoundError:  # a server removes files while we look
                continue
    return total
