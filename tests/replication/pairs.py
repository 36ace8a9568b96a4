"""Stores that follow each other, in one process or in two, and their logs as bytes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from rmqclient.replication.follower import Follower
from rmqclient.replication.primary import Primary
from rmqclient.replication.receiving import Ack
from rmqclient.store import Message, MessageStore, StoreConfig, open_store
from rmqclient.store.append.replica_log import ReplicaLog
from rmqclient.store.recovery.replica import become_replica
from rmqclient.store.settings.lineage import is_followed, read_lineage
from rmqclient.store.settings.replica_mark import ReplicaMark
from tests.support.stores import SMALL, TOPIC, abandon, appender_of, body_of

NO_BROKER = "127.0.0.1:1"
"""Where nobody answers, at once."""

LIMIT_S = 60.0


def until(condition: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    """Wait until something is so; the machine may be busy."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not in {limit_s:.0f} s: {what}"
        time.sleep(0.005)


@contextmanager
def open_replica(root: Path, config: StoreConfig = SMALL, primary: str = NO_BROKER) -> Iterator[MessageStore]:
    """Have a replica open, made when it is missing; no housekeeper does anything beside the test."""
    become_replica(root, config, ReplicaMark(primary, NO_BROKER, 1))
    with open_store(root, config, housekeeping=False) as opened:
        yield opened


@contextmanager
def following(
    store: MessageStore, address: tuple[str, int], broker: str = NO_BROKER, ack: Ack = Ack.MEMORY
) -> Iterator[Follower]:
    """Let an open replica follow an address. An error that ends the follower is the test's, at the end."""
    follower = Follower(store, f"{address[0]}:{address[1]}", broker, ack=ack)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            follower.run()
        except BaseException as error:  # noqa: BLE001 - it is raised in the test's thread
            failures.append(error)

    thread = threading.Thread(target=run, name="follower of a test")
    thread.start()
    try:
        yield follower
    finally:
        follower.end()
        thread.join()
    if failures:
        raise failures[0]


@contextmanager
def open_primary(root: Path, port: int = 0) -> Iterator[tuple[MessageStore, str]]:
    """Have a primary open, and the address where it sends its log."""
    with open_store(root, SMALL, housekeeping=False) as store, Primary(store, "127.0.0.1", port) as sending:
        host, bound = sending.start()
        yield store, f"{host}:{bound}"


def catch_up(copy: Path, store: MessageStore, address: str) -> None:
    """Let a replica follow until it has all that a primary has."""
    host, _, port = address.rpartition(":")
    with open_replica(copy, primary=address) as replica, following(replica, (host, int(port))):
        until(lambda: replica.state.published_to == store.state.published_to, "the replica has all")
        until(lambda: read_lineage(copy) == read_lineage(store.root), "the replica knows the epochs")
        until(lambda: is_followed(store.root), "the primary has heard it")
        assert log_bytes(replica) == log_bytes(store)


def followed(root: Path, copy: Path, count: int) -> tuple[MessageStore, tuple[str, int]]:
    """Return an open store with so many messages, all of which a replica has, and where it sent its log."""
    store = open_store(root, SMALL, housekeeping=False)
    with Primary(store, "127.0.0.1", 0) as sending:
        address = sending.start()
        fill(store, count)
        catch_up(copy, store, f"{address[0]}:{address[1]}")
    return store, address


def lose_power(store: MessageStore, end: int) -> None:
    """Leave a store as a power cut does that takes the end of its log."""
    store.log_files.sync(0, end)
    abandon(store)
    for base in store.log_files.bases():
        path = store.log_files.path(base)
        kept = max(0, min(end - base, store.log_files.file_bytes))
        path.write_bytes(path.read_bytes()[:kept].ljust(store.log_files.file_bytes, b"\0"))
    (store.root / "shared").unlink()


def fill(store: MessageStore, count: int, size: int = 400, first: int = 0) -> None:
    """Append messages that roll over several files."""
    appender = appender_of(store)
    for number in range(first, first + count):
        appender.append(Message(TOPIC, body_of(number, size)))


def log_bytes(store: MessageStore, start: int = 0, end: int | None = None) -> bytes:
    """Return the log of a store as it lies in its files, up to its published end."""
    files, end = store.log_files, store.state.published_to if end is None else end
    found = bytearray()
    while start < end:
        base = files.base_of(start)
        found += files.read(base, start - base, min(end, base + files.file_bytes) - start)
        start = base + files.file_bytes
    return bytes(found)


def feed(replica: ReplicaLog, content: bytes, piece: int) -> None:
    """Give a replica bytes in pieces, as a wire would; they begin at its end."""
    held = b""
    for at in range(0, len(content), piece):
        held += content[at : at + piece]
        held = held[replica.take(memoryview(held)) :]


class Process:
    """A process of ``rmq`` that prints one line of JSON when it is ready; a context manager that kills it."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rmqclient.workers", *arguments], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"rmq {' '.join(arguments)} ended with {self._process.wait()}"
        self.ready: dict[str, Any] = json.loads(line)

    def kill(self) -> None:
        """End it by ``kill -9``; also when it has ended."""
        self._process.kill()
        self._end()

    def stop(self) -> int:
        """End it by TERM; return its exit status."""
        self._process.terminate()
        return self._end()

    def wait(self) -> int:
        """Wait until it ends by itself; return its exit status."""
        return self._end()

    def _end(self) -> int:
        status = self._process.wait(LIMIT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def serve(root: Path, *more: str, ha_port: int = 0, port: int = 0) -> Process:
    """Start a primary with its broker."""
    return Process("serve", str(root), "--listen", f"127.0.0.1:{port}", "--ha-listen", f"127.0.0.1:{ha_port}", *more)


def follow(root: Path, primary: Process, *more: str) -> Process:
    """Start the follower of a primary."""
    address = ("follow", primary.ready["ha"], "--broker", primary.ready["name_server"])
    return Process("replica", *address, "--store", str(root), "--log-level", "warning", *more)
