"""A store that was a primary finds its place again: it is cut back and follows, or takes back what it lost."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rmqclient import Producer, PullConsumer
from rmqclient.errors import LogsDiffer, StoreFenced, StoreInUse, StoreUnsettled, StoreUnusable
from rmqclient.replication import promotion
from rmqclient.replication.frames import OURS
from rmqclient.replication.handshake import greet, hello_of
from rmqclient.replication.primary import Primary
from rmqclient.replication.returning.reclaiming import reclaim
from rmqclient.replication.returning.rejoining import Rejoining, look, rejoin
from rmqclient.store import MessageStore, open_store
from rmqclient.store.recovery.cutting import DIVERGED
from rmqclient.store.settings.lineage import Lineage, is_followed, read_lineage, write_lineage
from rmqclient.store.settings.replica_mark import Kind, read_mark
from tests.replication.pairs import (
    catch_up,
    fill,
    followed,
    following,
    log_bytes,
    lose_power,
    open_primary,
    open_replica,
    until,
)
from tests.support.oracle import reference
from tests.support.stores import GROUP, QUEUE, SMALL, abandon, body_of


def bodies(root: Path) -> list[bytes]:
    """Return what the queue of a store holds, in its order."""
    with PullConsumer(root, group="judge") as consumer:
        return [message.body for message in consumer.messages("orders", wait=0)]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """An old primary with 20 messages that nobody else has, and its replica, which was promoted and got 30 others."""
    old, new = tmp_path / "old", tmp_path / "new"
    with open_primary(old) as (store, address):
        fill(store, 120)
        catch_up(new, store, address)
    promotion.promote(new, force=True)
    with open_store(old, SMALL) as store, PullConsumer(store, group=GROUP) as consumer:
        fill(store, 20, first=500)
        consumer.commit(QUEUE, 135)  # beyond what the new one has
    with open_store(new, SMALL, housekeeping=False) as store:
        fill(store, 30, first=700)
    return old, new


@pytest.mark.guarantee("G82")
def test_an_old_primary_is_cut_back_to_what_both_have_and_its_own_messages_are_kept(pair: tuple[Path, Path]) -> None:
    old, new = pair
    with open_primary(new) as (store, address):
        # Given what is shown before anything is done
        found = look(old, address)
        assert (found.cut_messages, found.epoch, found.primary_epoch // 100_000) == (20, 1, 1)
        with open_store(old, SMALL) as before:
            assert found.end == before.state.published_to
            kept = log_bytes(before, found.cut_to)
        assert len(kept) == found.cut_bytes

        # When it rejoins, its messages are in a file, and it has what the new primary has, to the last byte
        path = rejoin(old, found)
        assert path is not None
        assert (path.parent.name, path.read_bytes()) == (DIVERGED, kept)
        catch_up(old, store, address)

    # And nobody is behind the end of the queue
    assert reference.check_store(old) == []
    promotion.promote(old, force=True)
    with PullConsumer(old, group=GROUP) as consumer:
        assert consumer.committed_offset(QUEUE) == 120
    assert bodies(old) == [body_of(n, 400) for n in (*range(120), *range(700, 730))]


@pytest.mark.guarantee("G82")
def test_what_was_cut_does_not_come_back_when_new_records_end_where_an_old_one_began(pair: tuple[Path, Path]) -> None:
    old, new = pair
    with open_store(old, SMALL, housekeeping=False) as store:
        fill(store, 400, first=900)
        files = len(store.log_files.bases())
    with open_primary(new) as (_, address):
        found = look(old, address)
        rejoin(old, found)
    with open_store(old, housekeeping=False) as store:
        assert store.state.published_to == found.cut_to
        assert len(store.log_files.bases()) < files
        base = store.log_files.base_of(found.cut_to)
        rest = store.log_files.read(base, found.cut_to - base, store.log_files.file_bytes - (found.cut_to - base))
        assert rest.count(0) == len(rest)
        assert max(store.log_files.bases()) <= found.cut_to
        (old / "checkpoint").unlink()
        abandon(store)
    (old / "shared").unlink()  # all that is known is in the files
    with open_store(old, housekeeping=False) as store:
        assert store.state.published_to == found.cut_to


@pytest.mark.guarantee("G82")
def test_promotions_and_rejoins_in_turn_with_no_message_between_lose_and_cut_nothing(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with open_primary(first) as (store, address):
        fill(store, 40)
        content = log_bytes(store)
        catch_up(second, store, address)
    for turn in range(4):
        promotion.promote(second, force=True)
        with open_primary(second) as (store, address):
            found = look(first, address)
            assert (found.cut_bytes, found.primary_epoch // 100_000) == (0, turn + 1)
            assert rejoin(first, found) is None
            catch_up(first, store, address)
            assert log_bytes(store) == content
        first, second = second, first
    begun, newest = read_lineage(first).epochs
    assert (begun, newest.number // 100_000, newest.start) == ((1, 0), 4, len(content))


@pytest.mark.guarantee("G82")
def test_a_store_is_not_cut_on_doubt(pair: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = pair
    with open_primary(new) as (_, address), open_primary(tmp_path / "stranger") as (stranger, elsewhere):
        fill(stranger, 10)
        catch_up(tmp_path / "its-copy", stranger, elsewhere)
        found = look(old, address)
        with open_store(old, SMALL, housekeeping=False) as store:
            before = log_bytes(store)
            with pytest.raises(StoreInUse):
                rejoin(old, found)
            fill(store, 1, first=900)
        with pytest.raises(StoreInUse):  # somebody has sent since
            rejoin(old, found)
        with pytest.raises(LogsDiffer, match="another store"):
            look(old, elsewhere)
    with open_primary(old) as (_, address), pytest.raises(LogsDiffer, match="should follow this one"):
        look(new, address)
    with open_store(old, SMALL, housekeeping=False) as store:
        assert log_bytes(store, 0, len(before)) == before
    assert read_mark(old) is None


@pytest.mark.guarantee("G82")
def test_of_two_replicas_that_were_both_promoted_the_one_of_the_lower_epoch_rejoins_the_other(tmp_path: Path) -> None:
    # Given two replicas of one primary, promoted at one place of the log, that went two ways
    primary, *copies = (tmp_path / name for name in ("primary", "left", "right"))
    with open_primary(primary) as (store, address):
        fill(store, 10)
        for copy in copies:
            catch_up(copy, store, address)
    for number, copy in enumerate(copies):
        promotion.promote(copy, force=True)
        with open_store(copy, SMALL, housekeeping=False) as store:
            fill(store, 10, first=100 * (number + 1))
    lower, upper = sorted(copies, key=lambda copy: read_lineage(copy).newest)

    # When the one of the lower epoch rejoins
    with open_primary(lower) as (_, address), pytest.raises(LogsDiffer, match="should follow this one"):
        look(upper, address)
    with open_primary(upper) as (store, address):
        found = look(lower, address)
        rejoin(lower, found)
        catch_up(lower, store, address)

    # Then it has what the other one has, and its own messages are put aside
    assert found.cut_messages == 10
    promotion.promote(lower, force=True)
    assert bodies(lower) == bodies(upper)


@pytest.mark.guarantee("G82")
def test_two_copies_of_one_directory_are_told_apart_by_their_bytes(tmp_path: Path) -> None:
    primary, copy, copied = (tmp_path / name for name in ("primary", "copy", "copied"))
    with open_primary(primary) as (store, address):
        fill(store, 10)
        catch_up(copy, store, address)
    promotion.promote(copy, force=True)
    shutil.copytree(copy, copied)
    for number, root in enumerate((copy, copied)):
        with open_store(root, SMALL, housekeeping=False) as store:
            fill(store, 10, first=100 * (number + 1))
    with open_primary(copy) as (_, address), pytest.raises(LogsDiffer, match="copied"):
        look(copied, address)


@pytest.mark.guarantee("G83")
def test_a_primary_that_lost_power_takes_back_what_its_replica_has_and_begins_an_epoch(tmp_path: Path) -> None:
    # Given a primary whose power cut took messages that were replicated
    root, copy = tmp_path / "primary", tmp_path / "replica"
    store, (host, port) = followed(root, copy, 100)
    content = log_bytes(store)
    lose_power(store, store.messages.at(QUEUE, 30).commit_log_offset)

    # Then nobody opens it, and it is not promoted without a word
    with pytest.raises(StoreUnsettled), Producer(root):
        pass
    with pytest.raises(StoreUnusable, match="was not asked"):
        promotion.promote(root)

    # When its replica connects, it has all again
    with (
        taking_back(root, copy, (host, port)) as replica,
        open_store(root, SMALL, housekeeping=False) as again,
        Primary(again, host, port) as sending,
    ):
        assert log_bytes(again) == content
        assert read_lineage(root).epochs == ((1, 0), (2, len(content)))

        # And the replica follows it as before
        sending.start()
        fill(again, 10, first=100)
        until(lambda: log_bytes(replica) == log_bytes(again), "the replica has all")
    assert bodies(root) == [body_of(n, 400) for n in range(110)]


@contextmanager
def asking(root: Path, address: tuple[str, int]) -> Iterator[threading.Thread]:
    """Let a primary that lost power wait for its replica; the thread ends when it is settled, and with the block."""
    ended = threading.Event()
    waiting = threading.Thread(target=reclaim, args=(root, *address, ended))
    waiting.start()
    try:
        yield waiting
    finally:
        ended.set()
        waiting.join()


@contextmanager
def taking_back(root: Path, copy: Path, address: tuple[str, int]) -> Iterator[MessageStore]:
    """Let a primary that lost power take back what a replica has; the replica, which goes on following then."""
    with (
        asking(root, address) as waiting,
        open_replica(copy, primary=f"{address[0]}:{address[1]}") as replica,
        following(replica, address),
    ):
        waiting.join(60)
        yield replica


@pytest.mark.guarantee("G81")
@pytest.mark.parametrize("lost", [0, 70])
def test_a_replica_that_has_not_heard_of_its_primarys_newest_epoch_takes_its_place_all_the_same(
    tmp_path: Path, lost: int
) -> None:
    # Given a primary that began an epoch when it had lost power, with messages that only it has, or without
    root, copy = tmp_path / "primary", tmp_path / "replica"
    store, (host, port) = followed(root, copy, 90)
    fill(store, 10, first=90)
    lose_power(store, store.messages.at(QUEUE, 99 - lost).commit_log_offset)
    with taking_back(root, copy, (host, port)):
        pass

    # When its replica is promoted before it has heard of that
    assert [epoch.number for lineage in map(read_lineage, (root, copy)) for epoch in lineage.epochs] == [1, 2, 1]
    with open_primary(root, port) as (store, _):
        promotion.promote(copy, force=True)

        # Then the old primary takes nothing any more
        with pytest.raises(StoreFenced, match=r"epoch 1\d{5}"):
            fill(store, 1)

    # And it is cut where they part
    with open_primary(copy) as (store, address):
        fill(store, 5, first=500)
        found = look(root, address)
        assert (found.cut_messages, found.epoch) == (0 if lost else 9, 2)
        rejoin(root, found)
        catch_up(root, store, address)


@pytest.mark.guarantee("G81")
def test_a_store_that_is_promoted_before_it_has_followed_the_one_it_rejoined_fences_it(pair: tuple[Path, Path]) -> None:
    old, new = pair
    with open_primary(new) as (store, address):
        rejoin(old, look(old, address))
        promotion.promote(old, force=True)
        with pytest.raises(StoreFenced, match=r"epoch 2\d{5}"):
            fill(store, 1)


@pytest.mark.guarantee("G83")
@pytest.mark.parametrize("has_id", [False, True], ids=["unknown", "killed behind its id"])
def test_a_replica_that_never_got_a_byte_settles_its_primary_and_a_new_one_does_not(
    tmp_path: Path, has_id: bool
) -> None:
    # Given a replica that was met, and whose connection broke before the first byte
    root, copy, new = tmp_path / "primary", tmp_path / "replica", tmp_path / "new"
    store = open_store(root, SMALL, housekeeping=False)
    with Primary(store, "127.0.0.1", 0) as sending, open_replica(copy) as replica:
        host, port = sending.start()
        fill(store, 20)
        with socket.create_connection((host, port)) as connection:
            greet(connection, hello_of(replica))
            connection.sendall(OURS.report(0))
            until(lambda: is_followed(root), "the primary knows that it is followed")
    lose_power(store, store.messages.at(QUEUE, 10).commit_log_offset)
    with pytest.raises(StoreUnsettled):
        open_store(root, SMALL)

    # When the primary asks, then a new directory says nothing of what was lost
    with asking(root, (host, port)) as waiting:
        with open_replica(new) as other:
            _be_heard(other, host, port)
        mark = read_mark(root)
        assert mark is not None
        assert mark.kind is Kind.UNSETTLED

        # And the replica does: it has nothing to give back
        if has_id:
            write_lineage(copy, Lineage(read_lineage(root).store_id, ()))
        with open_replica(copy) as replica:
            _be_heard(replica, host, port)
        waiting.join(60)
    assert bodies(root) == [body_of(n, 400) for n in range(10)]


def _be_heard(replica: MessageStore, host: str, port: int) -> None:
    """Call a primary that waits for its replica, and wait until it hangs up."""

    def called() -> bool:
        with suppress(ConnectionRefusedError), socket.create_connection((host, port)) as connection:
            greet(connection, hello_of(replica))
            assert connection.recv(1) == b""
            return True
        return False

    until(called, "the primary has answered")


@pytest.mark.guarantee("G83")
def test_a_promoted_store_that_nobody_follows_yet_is_opened_at_once_after_a_power_cut(pair: tuple[Path, Path]) -> None:
    store = open_store(pair[1], SMALL, housekeeping=False)
    lose_power(store, store.messages.at(QUEUE, 130).commit_log_offset)
    assert len(bodies(pair[1])) >= 120


@pytest.mark.guarantee("G83")
def test_a_primary_that_goes_on_without_its_replica_is_found_out_by_it(tmp_path: Path) -> None:
    root, copy = tmp_path / "primary", tmp_path / "replica"
    store, (host, _) = followed(root, copy, 20)
    lose_power(store, store.messages.at(QUEUE, 10).commit_log_offset)
    with pytest.raises(StoreUnsettled):
        open_store(root, SMALL)
    promotion.promote(root, force=True)
    with open_primary(root) as (store, address):
        fill(store, 20, first=100)
        with (
            open_replica(copy, primary=address) as replica,
            pytest.raises(LogsDiffer, match="rejoin"),
            following(replica, (host, int(address.rpartition(":")[2]))) as follower,
        ):
            until(follower._ended.is_set, "the follower gives up")

    # Then a replica that has refused the log is none that a power cut would have to be told about
    store = open_store(root, SMALL, housekeeping=False)
    lose_power(store, store.state.published_to)
    assert len(bodies(root)) == 30

    # And it follows when what only it has was put aside
    with open_primary(root) as (store, address):
        found: Rejoining = look(copy, address)
        assert found.cut_messages == 10
        rejoin(copy, found)
        catch_up(copy, store, address)
