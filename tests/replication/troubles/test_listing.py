"""The list of connected replicas: it grows old, may be damaged, and never keeps a primary from ending."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from rmqclient.replication.acks import connected as listing
from rmqclient.replication.acks.connected import connected
from rmqclient.replication.frames import report
from rmqclient.replication.primary import Primary
from rmqclient.store import MessageStore, clock, open_store
from rmqclient.store.settings.replication import OnLost, Replication, Sync
from tests.replication.pairs import fill, following, open_replica, until
from tests.support.stores import SMALL

FILE = "followers.json"
ENTRY = {"address": "10.0.0.2:4711", "copy": "b:/copy", "reports": "disk", "missing_bytes": 7}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with some messages."""
    with open_store(tmp_path / "primary", SMALL, housekeeping=False) as opened:
        fill(opened, 5)
        yield opened


@pytest.mark.parametrize(("age_ms", "count"), [(0, 1), (14_000, 1), (16_000, 0), (-16_000, 0)])
def test_a_list_that_nobody_writes_any_more_is_not_believed(tmp_path: Path, age_ms: int, count: int) -> None:
    (tmp_path / FILE).write_bytes(orjson.dumps({"written_ms": clock.wall_ms() - age_ms, "replicas": [ENTRY]}))
    assert len(connected(tmp_path)) == count


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"written_ms": 1}', b'{"written_ms": "x", "replicas": []}', b'{"replicas": [1]}']
)
def test_a_damaged_list_names_nobody(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert connected(tmp_path) == ()


def test_who_has_not_said_anything_is_no_slave_of_rocketmq(store: MessageStore) -> None:
    with Primary(store, "127.0.0.1", 0) as primary:
        address = primary.start()
        with socket.create_connection(address, 60), socket.create_connection(address, 60) as slave:
            slave.sendall(report(store.state.published_to))
            until(lambda: connected(store.root), "the slave is listed")
            until(lambda: len(primary.connections()) == 2, "both are connected")
            (found,) = connected(store.root)
            assert found.address == "{}:{}".format(*slave.getsockname())


def test_a_clock_that_is_set_back_does_not_stop_the_list(
    store: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_WRITE_S", 0.0)
    with (
        Primary(store, "127.0.0.1", 0) as primary,
        open_replica(tmp_path / "copy") as replica,
        following(replica, primary.start()),
    ):
        until(lambda: connected(store.root), "the replica is listed")
        back = clock.wall_ms() - 3_600_000
        monkeypatch.setattr("rmqclient.store.clock.wall_ms", lambda: back)
        until(lambda: connected(store.root), "the list is written by the new clock", 10)


def test_a_list_is_written_without_waiting_for_the_disk(
    store: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    with (
        Primary(store, "127.0.0.1", 0) as primary,
        open_replica(tmp_path / "copy") as replica,
        following(replica, primary.start()),
    ):
        until(lambda: any(each.missing_bytes == 0 for each in connected(store.root)), "the replica is listed")
        (store.root / FILE).unlink()
        monkeypatch.setattr(listing, "_WRITE_S", 0.0)
        fsync = os.fsync

        def noted(descriptor: int) -> None:
            if Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(store.root):
                flushed.append(descriptor)
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", noted)
        until(lambda: connected(store.root), "the replica is listed again")
    assert flushed == []


def test_a_list_that_cannot_be_removed_does_not_keep_the_primary_from_ending(
    store: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Replication(Sync.MEMORY, OnLost.REFUSE, timeout_ms=30_000)
    with (
        Primary(store, "127.0.0.1", 0, waiting) as primary,
        open_replica(tmp_path / "copy") as replica,
        following(replica, primary.start()),
    ):
        until(lambda: store.replicas.are_in_sync, "the replica is in sync")

        def stuck(*_: object, **__: object) -> None:
            raise PermissionError("not yours")

        monkeypatch.setattr(Path, "unlink", stuck)
        primary.close()
        monkeypatch.undo()
        assert not store.replicas.are_in_sync
        assert primary.replicas() == {}
