"""Who else connects: silent probes, slaves that have too much, stores that only look, and a status that is asked."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rmqclient.errors import StoreInUse
from rmqclient.replication import sender as sender_module
from rmqclient.replication.acks.followers import acknowledged
from rmqclient.replication.frames import OURS, FrameReader, report
from rmqclient.replication.handshake import Wants, greet, hello_of
from rmqclient.replication.primary import Primary
from rmqclient.replication.returning.reclaiming import reclaim
from rmqclient.store import MessageStore, open_store
from rmqclient.store.recovery import replica as replica_recovery
from rmqclient.store.settings.replica_mark import ReplicaMark, read_mark
from rmqclient.store.settings.replication import ASYNC
from tests.replication.pairs import fill, followed, following, lose_power, open_replica, until
from tests.support.stores import QUEUE, SMALL


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with some messages."""
    with open_store(tmp_path / "primary", SMALL, housekeeping=False) as opened:
        fill(opened, 5)
        yield opened


def test_a_slave_that_reported_too_much_is_refused_until_it_is_empty(store: MessageStore) -> None:
    # Given a slave of RocketMQ with bytes that this store has lost
    end = store.state.published_to
    with Primary(store, "127.0.0.1", 0) as primary:
        address = primary.start()
        with socket.create_connection(address, 60) as slave:
            slave.sendall(report(end + 100))
            assert slave.recv(1) == b""

        # When the log has passed its end, then it is refused all the same: what it has there is not from here
        fill(store, 5, first=5)
        with socket.create_connection(address, 60) as slave:
            slave.sendall(report(end + 100))
            assert slave.recv(1) == b""

        # And it is served when it begins with nothing
        with socket.create_connection(address, 60) as slave:
            slave.sendall(report(0))
            (frame, *_) = FrameReader().feed(slave.recv(1 << 16))
            assert frame.offset == 0
        until(lambda: not primary.replicas(), "the slave has gone")
        with socket.create_connection(address, 60) as slave:
            slave.sendall(report(end + 100))
            (frame, *_) = FrameReader().feed(slave.recv(1 << 16))
            assert frame.offset == end + 100


def test_of_slaves_that_reported_too_much_those_that_came_last_are_known(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "MOST_STRANGERS", 3)
    end = store.state.published_to
    with Primary(store, "127.0.0.1", 0) as primary:
        address = primary.start()
        # Given two slaves with bytes that this store has lost, of which the first one comes again when the log has them
        assert reported(address, "127.0.0.2", end + 100) == b""
        assert reported(address, "127.0.0.3", end + 100) == b""
        fill(store, 5, first=5)
        assert reported(address, "127.0.0.2", end + 100) == b""

        # When two others report too much, then the one that was silent for longest is forgotten, and only that one
        assert reported(address, "127.0.0.4", end + 1_000_000) == b""
        assert reported(address, "127.0.0.5", end + 1_000_000) == b""
        assert reported(address, "127.0.0.2", end + 100) == b""
        assert reported(address, "127.0.0.4", end + 100) == b""
        assert reported(address, "127.0.0.3", end + 100) != b""


def reported(address: tuple[str, int], host: str, end: int) -> bytes:
    """Connect from a host as a slave whose log goes so far; return what is sent to it, nothing if it is refused."""
    with socket.create_connection(address, 60, (host, 0)) as slave:
        slave.sendall(report(end))
        return slave.recv(1 << 16)


def test_a_store_that_only_looks_takes_the_acks_of_a_replica_not_away(store: MessageStore, tmp_path: Path) -> None:
    with (
        Primary(store, "127.0.0.1", 0) as primary,
        open_replica(tmp_path / "copy") as replica,
        following(replica, address := primary.start()),
    ):
        until(lambda: acknowledged(primary.connections(), ASYNC) == store.state.published_to, "the replica has all")

        # When the same copy looks, beside its follower
        with socket.create_connection(address, 60) as connection:
            greet(connection, hello_of(replica, Wants.LOOK))
            connection.sendall(OURS.report(store.state.published_to))
            until(
                lambda: [each.reported is None for each in primary.connections()] == [False, False], "it has reported"
            )

            # Then what the follower has acknowledged stays
            assert acknowledged(primary.connections(), ASYNC) == store.state.published_to


@pytest.fixture
def unsettled(tmp_path: Path) -> tuple[Path, Path, tuple[str, int]]:
    """A primary that lost power, its replica, and where the replica connects."""
    root, copy = tmp_path / "primary", tmp_path / "replica"
    store, address = followed(root, copy, 20)
    lose_power(store, store.messages.at(QUEUE, 10).commit_log_offset)
    return root, copy, address


@pytest.mark.guarantee("G83")
def test_a_silent_probe_does_not_keep_a_primary_from_its_replica(unsettled: tuple[Path, Path, tuple[str, int]]) -> None:
    root, copy, address = unsettled
    waiting = threading.Thread(target=reclaim, args=(root, *address, threading.Event()))
    waiting.start()
    probes: list[socket.socket] = []

    def is_reached() -> bool:
        try:
            probes.append(socket.create_connection(address, 60))
        except ConnectionRefusedError:
            return False
        return len(probes) == 3

    until(is_reached, "three probes are connected, and say nothing")
    with open_replica(copy, primary=f"{address[0]}:{address[1]}") as replica, following(replica, address):
        waiting.join(15)
        assert not waiting.is_alive()
    for probe in probes:
        probe.close()
    assert read_mark(root) is None


@pytest.mark.guarantee("G83")
def test_a_status_that_is_asked_at_the_wrong_moment_does_not_end_what_takes_messages_back(
    unsettled: tuple[Path, Path, tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a command that has the store open when the primary is settled
    root, copy, address = unsettled
    refusals: list[StoreInUse] = []
    promote = replica_recovery.promote

    def watched(of: Path) -> ReplicaMark:
        try:
            return promote(of)
        except StoreInUse as error:
            refusals.append(error)
            raise

    monkeypatch.setattr(replica_recovery, "promote", watched)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            reclaim(root, *address, threading.Event())
        except BaseException as error:  # noqa: BLE001 - it is looked at in the test's thread
            failures.append(error)

    with open_replica(copy, primary=f"{address[0]}:{address[1]}") as replica, following(replica, address):
        with pytest.MonkeyPatch.context(), open_store_beside(root):
            waiting = threading.Thread(target=work)
            waiting.start()
            until(lambda: refusals, "the store is in use")
        waiting.join(30)
    assert failures == []
    assert read_mark(root) is None


def open_store_beside(root: Path) -> MessageStore:
    """Open a primary that waits for its replica, as `rmq replica status` does."""
    return open_store(root, create=False, housekeeping=False, settling=True)


def test_a_server_that_waits_for_its_replica_ends_with_its_parent(
    unsettled: tuple[Path, Path, tuple[str, int]],
) -> None:
    # Given a server that takes back what its replica has, and a parent that ends
    root, _, address = unsettled
    ha = f"{address[0]}:{address[1]}"
    server = (sys.executable, "-m", "rmqclient.workers", "serve", root, "--listen", "127.0.0.1:0", "--ha-listen", ha)
    command = [*map(str, server), "--die-with-parent"]
    parent = f"import subprocess; print(subprocess.Popen({command!r}).pid, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        running = os.pidfd_open(int(process.stdout.readline()))
        until(lambda: can_be_reached(address), "the server waits for its replica")
        process.kill()
    ended, _, _ = select.select([running], [], [], 60)
    os.close(running)
    assert ended == [running]


def can_be_reached(address: tuple[str, int]) -> bool:
    """Tell whether somebody listens."""
    with suppress(OSError), socket.create_connection(address, 60):
        return True
    return False
