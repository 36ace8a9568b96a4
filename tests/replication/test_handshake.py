"""The handshake of two of ours: what a replica goes on with, what it refuses, and who is fenced."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rmqclient.errors import FrameError, LogsDiffer, ReadOnlyReplica, StoreFenced, StoreInUse
from rmqclient.replication import handshake, promotion
from rmqclient.replication.frames import OURS, Frame
from rmqclient.replication.handshake import Wants
from rmqclient.replication.primary import Primary
from rmqclient.replication.returning.fencing import replaced
from rmqclient.store import MessageStore, open_store
from rmqclient.store.recovery.replica import promote
from rmqclient.store.settings.lineage import read_lineage
from rmqclient.store.settings.replica_mark import ReplicaMark, write_mark
from tests.replication.pairs import NO_BROKER, fill, following, log_bytes, open_replica, until
from tests.support.stores import SMALL


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with some messages."""
    with open_store(tmp_path / "primary", SMALL, housekeeping=False) as opened:
        fill(opened, 30)
        yield opened


@pytest.fixture
def listening(primary: MessageStore) -> Iterator[tuple[str, int]]:
    """Where the primary sends its log."""
    with Primary(primary, "127.0.0.1", 0) as sending:
        yield sending.start()


@pytest.fixture
def copy(primary: MessageStore, listening: tuple[str, int], tmp_path: Path) -> Path:
    """A replica that has all, and is closed."""
    root = tmp_path / "replica"
    with open_replica(root, primary=f"127.0.0.1:{listening[1]}") as replica, following(replica, listening):
        until(lambda: log_bytes(replica) == log_bytes(primary), "the replica has all")
    return root


@pytest.mark.guarantee("G80")
def test_a_replica_has_the_history_of_its_primary_and_a_promotion_begins_an_epoch(
    primary: MessageStore, copy: Path
) -> None:
    of_primary = read_lineage(primary.root)
    assert read_lineage(copy) == of_primary
    assert of_primary.epochs == ((1, 0),)
    promote(copy)
    end = primary.state.published_to
    first, second = read_lineage(copy).epochs
    assert (first, second.start) == ((1, 0), end)
    assert 100_000 <= second.number < 199_000


@pytest.mark.guarantee("G81")
def test_a_promotion_tells_the_old_primary_which_takes_nothing_any_more_in_any_process(
    primary: MessageStore, copy: Path
) -> None:
    with open_store(primary.root, housekeeping=False) as another:
        before = log_bytes(primary)
        found = promotion.promote(copy, force=True)
        assert (found.role, found.missing_bytes, replaced(copy)) == ("follower", 0, "")
        for store in (primary, another):
            with pytest.raises(StoreFenced, match=r"epoch 1\d{5}"):
                fill(store, 1)
        assert log_bytes(primary) == before
    assert promotion.status(primary.root).role == "fenced"
    with pytest.raises(StoreFenced, match="rejoin"), open_store(primary.root) as again:
        fill(again, 1)


@pytest.mark.guarantee("G81")
def test_a_fenced_primary_stays_with_the_newest_of_those_that_took_its_place(primary: MessageStore, copy: Path) -> None:
    primary.fence("db3", 1_000_000)
    assert promotion.promote(copy, force=True).untold == ""
    with pytest.raises(StoreFenced, match="db3 has epoch 1000000"):
        fill(primary, 1)


@pytest.mark.guarantee("G81")
def test_an_old_primary_that_could_not_be_reached_is_told_by_the_new_ones_server(
    primary: MessageStore, tmp_path: Path
) -> None:
    # Given a replica that was promoted while the port of its primary was closed
    copy = tmp_path / "replica"
    with Primary(primary, "127.0.0.1", 0) as sending:
        address = sending.start()
        with open_replica(copy, primary=f"127.0.0.1:{address[1]}") as replica, following(replica, address):
            until(lambda: log_bytes(replica) == log_bytes(primary), "the replica has all")
    with open_store(copy, housekeeping=False), pytest.raises(StoreInUse):
        promotion.promote(copy, force=True)
    assert replaced(copy) == ""
    untold = f"127.0.0.1:{address[1]}"
    assert promotion.promote(copy, force=True).untold == promotion.status(copy).untold == untold
    fill(primary, 1)

    # When both serve replicas, the old one takes nothing any more
    with (
        open_store(copy, housekeeping=False) as new,
        Primary(new, "127.0.0.1", 0) as serving,
        Primary(primary, *address) as sending,
    ):
        serving.start(), sending.start()
        until(lambda: primary.life.is_replica, "the old one is fenced")
        with pytest.raises(ReadOnlyReplica):
            fill(primary, 1)
        until(lambda: not replaced(copy), "the new one knows")


@pytest.mark.guarantee("G80")
def test_a_replica_that_has_more_than_its_primary_says_so_by_the_epochs_and_changes_nothing(
    primary: MessageStore, listening: tuple[str, int], copy: Path
) -> None:
    promote(copy)
    with open_store(copy, housekeeping=False) as other_way:
        fill(other_way, 5, first=500)
        before = log_bytes(other_way)
    write_mark(copy, ReplicaMark(NO_BROKER, NO_BROKER, 1))
    with open_replica(copy) as replica:
        with pytest.raises(LogsDiffer, match=r"knows epoch 1\d{5}"), following(replica, listening) as follower:
            until(follower._ended.is_set, "the follower gives up")
        assert log_bytes(replica) == before
    assert not primary.life.is_replica  # a replica does not fence


def test_a_replica_of_another_store_is_refused(
    listening: tuple[str, int], primary: MessageStore, tmp_path: Path
) -> None:
    with open_replica(tmp_path / "replica") as replica:
        (replica.root / "lineage.json").write_text('{"store_id": "another"}')
        with pytest.raises(LogsDiffer, match="another store"), following(replica, listening) as follower:
            until(follower._ended.is_set, "the follower gives up")


def test_what_comes_damaged_is_neither_a_report_nor_a_frame_nor_a_hello() -> None:
    stream = OURS.frame(7, b"abc") + OURS.end_frame(12)
    assert list(OURS.frame_reader().feed(stream)) == [Frame(7, b"abc"), Frame(12, b"", is_end=True)]
    assert OURS.report_reader().feed(OURS.report(7)) == [7]
    for at in range(len(stream)):
        damaged = bytearray(stream)
        damaged[at] ^= 4
        found = []
        with suppress(FrameError):  # or it waits for more bytes, of which it knows nothing yet
            for frame in OURS.frame_reader().feed(bytes(damaged)):
                found.append(frame)  # noqa: PERF402 - what comes before an error counts
        assert found in ([], [Frame(7, b"abc")])
    for at in range(12):
        report = bytearray(OURS.report(7))
        report[at] ^= 1
        with pytest.raises(FrameError):
            OURS.report_reader().feed(bytes(report))


def test_a_hello_is_the_same_at_the_other_end_and_damage_is_found(primary: MessageStore) -> None:
    hello = handshake.hello_of(primary, Wants.LOOK, "disk")
    sent = handshake.encode(hello)
    assert handshake.read_hello(reading(sent)) == hello
    for at in range(len(sent)):
        damaged = bytearray(sent)
        damaged[at] ^= 1
        with pytest.raises((FrameError, ConnectionResetError)):
            handshake.read_hello(reading(bytes(damaged)))


def reading(content: bytes) -> handshake.Receive:
    """Return what reads these bytes as from a connection that ends then."""
    stream = io.BytesIO(content)

    def receive(count: int) -> bytes:
        if len(found := stream.read(count)) < count:
            raise ConnectionResetError("that is all")
        return found

    return receive
