"""The port of a primary: it survives what fails there, and one process has it."""

from __future__ import annotations

import logging
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqclient.errors import StoreBusy, StoreFull
from rmqclient.replication import primary as primary_module
from rmqclient.replication.frames import report
from rmqclient.replication.primary import Primary
from rmqclient.replication.sender import Sender
from rmqclient.store import MessageStore, open_store
from rmqclient.store.settings.replication import Replication, Sync
from tests.replication.pairs import fill, until
from tests.support.stores import SMALL


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with some messages."""
    with open_store(tmp_path / "primary", SMALL, housekeeping=False) as opened:
        fill(opened, 5)
        yield opened


@contextmanager
def without_descriptors() -> Iterator[None]:
    """Let this process open no file and no socket."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_served(primary: Primary, connection: socket.socket, end: int) -> bool:
    """Tell whether a primary knows what a connection has reported."""
    return primary.replicas().get("{}:{}".format(*connection.getsockname())) == end


def test_a_primary_that_had_no_descriptor_left_serves_the_replica_when_it_has_one(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    with Primary(store, "127.0.0.1", 0) as primary, socket.socket() as connection:
        address = primary.start()
        with without_descriptors(), caplog.at_level(logging.WARNING):
            connection.connect(address)
            until(lambda: "Too many open files" in caplog.text, "the primary says what is wrong")
        connection.sendall(report(store.state.published_to))
        until(lambda: is_served(primary, connection, store.state.published_to), "the replica is served")


def test_a_connection_that_cannot_be_served_is_ended_and_the_next_one_is_served(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = 1

    class Failing(Sender):
        def start(self) -> None:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr(primary_module, "Sender", Failing)
    with Primary(store, "127.0.0.1", 0) as primary:
        address = primary.start()
        with socket.create_connection(address, 60) as first:
            assert first.recv(1) == b""
        with socket.create_connection(address, 60) as second:
            second.sendall(report(store.state.published_to))
            until(lambda: is_served(primary, second, store.state.published_to), "the replica is served")


def test_one_process_sends_the_log_of_a_store(store: MessageStore, tmp_path: Path) -> None:
    with open_store(store.root, SMALL, housekeeping=False) as other:
        with Primary(store, "127.0.0.1", 0) as primary:
            primary.start()
            with Primary(other, "127.0.0.1", 0) as second, pytest.raises(StoreBusy):
                second.start()
        with Primary(other, "127.0.0.1", 0) as second:  # when the first one has ended
            second.start()


def test_a_primary_that_cannot_begin_says_why_and_ends(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreFull("no room")

    monkeypatch.setattr("rmqclient.store.append.replicas.write_replication", full)
    with pytest.raises(StoreFull), Primary(store, "127.0.0.1", 0, Replication(Sync.MEMORY)) as primary:
        primary.start()
    monkeypatch.undo()
    with Primary(store, "127.0.0.1", 0, Replication(Sync.MEMORY)) as primary:
        primary.start()
