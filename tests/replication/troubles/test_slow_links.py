"""Links that are slow, and primaries that have not what is asked for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rmqclient.errors import LogsDiffer, StoreUnusable
from rmqclient.replication import receiving
from rmqclient.replication.frames import SILENCE_S, STOCK, frame
from rmqclient.replication.joining import Joining
from rmqclient.replication.receiving import Ack, Receiving
from rmqclient.replication.returning import rejoining
from rmqclient.replication.returning.rejoining import look
from rmqclient.replication.sender import Sender
from rmqclient.store import MessageStore
from rmqclient.store.append.replica_log import ReplicaLog
from tests.replication.pairs import catch_up, feed, fill, log_bytes, open_primary, open_replica
from tests.support.stores import SMALL

TURN_S = 0.75 * SILENCE_S


class Trickle:
    """A connection whose bytes come one piece in a while; the clock of the receiver goes on by as much."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces
        self._now_s = 0.0
        self.sent = b""
        self.time = SimpleNamespace(monotonic=lambda: self._now_s)

    def recv(self, _: int) -> bytes:
        self._now_s += TURN_S
        return self._pieces.pop(0) if self._pieces else b""

    def sendall(self, content: bytes) -> None:
        self.sent += content

    def settimeout(self, _: float) -> None:
        pass

    def setsockopt(self, *_: int) -> None:
        pass


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[MessageStore]:
    """A replica with some messages."""
    with open_primary(tmp_path / "primary") as (store, _):
        fill(store, 10)
        content = log_bytes(store)
    with open_replica(tmp_path / "replica") as opened:
        feed(ReplicaLog(opened), content, len(content))
        yield opened


def receive(replica: MessageStore, pieces: list[bytes], monkeypatch: pytest.MonkeyPatch) -> ReplicaLog:
    """Receive these bytes slowly, until the primary hangs up."""
    link, log = Trickle(pieces), ReplicaLog(replica)
    monkeypatch.setattr(receiving, "time", link.time)
    joining = Joining(log, SMALL.commit_log_file_bytes, None)
    Receiving(replica, cast("socket.socket", link), log, joining, Ack.MEMORY, lambda _: None, wire=STOCK).run(
        threading.Event()
    )
    return log


def test_a_slow_link_does_not_end_the_follower(replica: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a primary whose bytes come for longer than silence would be believed
    last = ReplicaLog(replica).last_record()
    sent = frame(last, log_bytes(replica, last))
    pieces = [sent[at : at + len(sent) // 8] for at in range(0, len(sent), len(sent) // 8)]

    # Then the follower takes them all, and loses the connection only when the primary hangs up
    with pytest.raises(ConnectionResetError, match="closed the connection"):
        receive(replica, pieces, monkeypatch)
    assert not pieces


def test_a_primary_that_sends_a_part_of_what_is_asked_is_asked_again(
    replica: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = ReplicaLog(replica).last_record()
    part = frame(last, log_bytes(replica, last, last + 50))
    with pytest.raises(ConnectionError, match="a part"):
        receive(replica, [part, *[frame(last + 50, b"")] * 4], monkeypatch)


@pytest.mark.guarantee("G73")
def test_a_primary_that_sends_nothing_of_what_is_asked_ends_the_follower(
    replica: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = ReplicaLog(replica).last_record()
    with pytest.raises(LogsDiffer, match="sends nothing of bytes"):
        receive(replica, [frame(last, b"")] * 4, monkeypatch)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A store and its copy, which have the same log."""
    with open_primary(tmp_path / "new") as (store, address):
        fill(store, 20)
        catch_up(tmp_path / "old", store, address)
    return tmp_path / "old", tmp_path / "new"


@pytest.mark.guarantee("G82")
def test_a_store_does_not_rejoin_a_primary_that_has_removed_the_last_common_record(pair: tuple[Path, Path]) -> None:
    old, new = pair
    with open_primary(new) as (store, address):
        store.state.min_offset = store.state.published_to
        with pytest.raises(StoreUnusable, match="new directory"):
            look(old, address)


@pytest.mark.guarantee("G82")
def test_a_store_that_rejoins_does_not_wait_for_a_record_that_never_comes(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a primary that removes the record at this moment: it says how it stands, and nothing else
    old, new = pair
    monkeypatch.setattr(Sender, "_next", lambda *_: b"")
    monkeypatch.setattr(rejoining, "SILENCE_S", 1.5)
    with open_primary(new) as (_, address), pytest.raises(StoreUnusable, match="new directory"):
        look(old, address)
