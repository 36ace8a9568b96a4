"""What was answered without replicas is noted until they have it, and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rmqclient import Producer
from rmqclient.errors import StoreFull
from rmqclient.replication import promotion
from rmqclient.replication.acks.standing import standing
from rmqclient.replication.primary import Primary
from rmqclient.replication.returning.rejoining import look, rejoin
from rmqclient.store import MessageStore, open_store
from rmqclient.store.settings.replication import ASYNC, OnLost, Replication, Sync, read_replication
from tests.replication.pairs import catch_up, fill, following, open_primary, open_replica, until
from tests.replication.test_waiting_sends import Replica
from tests.support.stores import SMALL, TOPIC

DEGRADING = Replication(Sync.MEMORY, OnLost.DEGRADE, timeout_ms=2_000)


@pytest.fixture
def indebted(tmp_path: Path) -> Iterator[MessageStore]:
    """A store that has answered a message without replicas."""
    with open_store(tmp_path / "primary", SMALL, housekeeping=False) as store:
        fill(store, 5)
        with Primary(store, "127.0.0.1", 0, DEGRADING) as primary, Producer(store) as producer:
            primary.start()
            assert producer.send(TOPIC, b"message").replicated is False
        yield store


def is_noted(store: MessageStore) -> bool:
    """Tell whether the disk says that replicas lack messages."""
    return read_replication(store.root).missing_from is not None


@pytest.mark.guarantee("G78")
def test_that_replicas_have_everything_again_is_written_when_the_disk_has_room_again(
    indebted: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a disk that is full when the replica has everything
    failures: list[int] = []

    def full(*_: object) -> None:
        failures.append(1)
        raise StoreFull("no room")

    with Primary(indebted, "127.0.0.1", 0, DEGRADING) as primary, open_replica(tmp_path / "copy") as replica:
        address = primary.start()
        monkeypatch.setattr("rmqclient.store.append.replicas.write_replication", full)
        with following(replica, address):
            until(lambda: failures, "the primary has tried to write it")
            assert is_noted(indebted)

            # When it has room again, then it is written without any other message
            monkeypatch.undo()
            until(lambda: not is_noted(indebted), "the disk says that replicas have everything", 20)


@pytest.mark.guarantee("G78")
def test_the_note_goes_when_replicas_have_everything_and_nobody_waits_for_them_any_more(
    indebted: MessageStore, tmp_path: Path
) -> None:
    with (
        Primary(indebted, "127.0.0.1", 0, ASYNC) as primary,
        open_replica(tmp_path / "copy") as replica,
        following(replica, primary.start()),
    ):
        until(lambda: not is_noted(indebted), "the disk says that replicas have everything", 20)


def test_what_was_cut_off_is_not_missing_any_more(indebted: MessageStore, tmp_path: Path) -> None:
    # Given a store whose replica was promoted, with messages that were answered without one
    old, new = indebted.root, tmp_path / "copy"
    with Primary(indebted, "127.0.0.1", 0, DEGRADING) as primary:
        host, port = primary.start()
        catch_up(new, indebted, f"{host}:{port}")
        # It may have left before its last report was heard; the note stays until the primary hears that it has all.
        with open_replica(new, primary=f"{host}:{port}") as replica, following(replica, (host, port)):
            until(lambda: not is_noted(indebted), "the disk says that replicas have everything")
    with Producer(indebted) as producer:
        assert producer.send(TOPIC, b"message").replicated is False
    assert is_noted(indebted)
    indebted.close()
    promotion.promote(new, force=True)

    # When it rejoins, and is a primary again
    with open_primary(new) as (store, address):
        rejoin(old, look(old, address))
        assert read_replication(old).missing_from is None
        catch_up(old, store, address)
    promotion.promote(old, force=True)
    found = standing(old)
    assert found is not None
    assert (found.unreplicated_bytes, found.unreplicated_s) == (0, None)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """A store with messages for which nobody waited."""
    with open_store(tmp_path / "primary", SMALL, housekeeping=False) as opened:
        fill(opened, 20)
        yield opened


def missing_from(store: MessageStore) -> int | None:
    """Send a message without a replica; return where what replicas may lack begins then."""
    with Producer(store) as producer:
        assert producer.send(TOPIC, b"message").replicated is False
    return read_replication(store.root).missing_from


def test_what_was_sent_before_sends_began_to_wait_was_not_answered_without_replicas(store: MessageStore) -> None:
    before = store.state.published_to
    with Primary(store, "127.0.0.1", 0, DEGRADING) as primary:
        primary.start()
        assert missing_from(store) == before


def test_after_a_restart_of_the_host_only_what_was_answered_since_is_missing(
    store: MessageStore, tmp_path: Path
) -> None:
    # Given a store whose replica has all, and whose host is started again
    with Primary(store, "127.0.0.1", 0, DEGRADING) as primary:
        host, port = primary.start()
        catch_up(tmp_path / "copy", store, f"{host}:{port}")
    root, before = store.root, store.state.published_to
    store.close()
    (root / "shared").unlink()

    # When a message is answered without the replica
    with (
        open_store(root, SMALL, housekeeping=False) as again,
        Primary(again, "127.0.0.1", 0, DEGRADING) as primary,
    ):
        primary.start()
        assert missing_from(again) == before


def test_a_message_that_is_waited_for_while_a_server_begins_with_other_settings_is_missing(store: MessageStore) -> None:
    # Given a sender that waits for a replica, and a server that ends meanwhile
    with Producer(store) as producer, ThreadPoolExecutor(1) as pool:
        with Primary(store, "127.0.0.1", 0, DEGRADING) as primary, Replica(primary.start()) as replica:
            had = store.state.published_to
            replica.join(had)
            until(lambda: store.replicas.are_in_sync, "the replica is in sync")
            waiting = pool.submit(producer.send, TOPIC, b"message")
            until(lambda: store.state.published_to > had, "the message is stored")

        # When a server begins with other settings, and answers another message first
        others = Replication(Sync.MEMORY, OnLost.DEGRADE, followers=2)
        with Primary(store, "127.0.0.1", 0, others) as primary:
            primary.start()
            noted_from = missing_from(store)

            # Then the first one counts as missing, too
            assert waiting.result(60).replicated is False
    assert noted_from == had
