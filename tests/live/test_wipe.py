"""Wiping a store of development: what is removed, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient import App, Producer, StoreConfig
from rmqclient.live.wipe import WipeRefused, mark, wipe
from rmqclient.store.settings.lineage import begin_lineage, note_followed
from rmqclient.store.settings.replica_mark import ReplicaMark, write_mark
from rmqclient.store.settings.replication import Replication, Sync, write_replication

pytestmark = pytest.mark.guarantee("G70")


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """Return a store with one message that no group reads, and a file that is not of a store."""
    root = tmp_path / "store"
    with Producer(root, config=StoreConfig.small()) as producer:
        producer.send("orders", b"1")
        producer.send("orders", b"2", delay=1000)
        producer.create_topic("prices", 1, cleanup_policy="compact")
    (root / "notes.txt").touch()
    return root


def test_a_store_that_dev_has_made_is_wiped_with_a_word_about_what_it_held(used: Path) -> None:
    mark(used)
    assert "with messages: 1 that no group reads, 1 that wait for their time" in wipe(
        used, is_named=False, is_sure=False
    )
    assert [path.name for path in used.iterdir()] == ["notes.txt"]
    assert wipe(used, is_named=False, is_sure=False) == f"nothing to wipe in {used}"


def test_a_store_of_others_must_be_named_and_its_unread_messages_need_a_yes(used: Path) -> None:
    with pytest.raises(WipeRefused, match="was not made by rmq dev: to wipe it, name it with --store"):
        wipe(used, is_named=False, is_sure=True)
    with pytest.raises(WipeRefused, match="1 that wait for their time: add --yes"):
        wipe(used, is_named=True, is_sure=False)
    assert (used / "commitlog").exists()
    wipe(used, is_named=True, is_sure=True)
    assert not (used / "commitlog").exists()


def test_a_replica_that_was_wiped_is_no_replica_any_more(used: Path) -> None:
    # Given a store with every document of replication, and the text before it, that is read in its place
    for since_ms in (1, 2):
        note_followed(used, f"copy:{since_ms}")
        write_replication(used, Replication(Sync.MEMORY, timeout_ms=1_000 * since_ms))
        write_mark(used, ReplicaMark("db1:10912", "db1:10911", since_ms))
    begin_lineage(used)
    for name in ("lineage.json", "replica.json", "replication.json"):
        assert (used / f"{name}.bak").exists()

    # When it is wiped, then a new store in its place takes messages, and waits for nobody
    wipe(used, is_named=True, is_sure=True)
    assert [path.name for path in used.iterdir()] == ["notes.txt"]
    with Producer(used, config=StoreConfig.small()) as producer:
        assert producer.send("orders", b"1").replicated is None


def test_a_store_that_is_open_is_not_wiped(used: Path) -> None:
    mark(used)
    with Producer(used), pytest.raises(WipeRefused, match="is open in another process"):
        wipe(used, is_named=True, is_sure=True)
    assert (used / "commitlog").exists()


def test_a_store_whose_messages_are_handled_needs_no_yes(tmp_path: Path) -> None:
    root = tmp_path / "store"
    app = App(root, config=StoreConfig.small())
    done: list[bytes] = []

    def bill(order: bytes) -> None:
        done.append(order)

    app.handler("orders", "billing")(bill)
    with Producer(root, config=StoreConfig.small()) as producer, app.running():
        producer.send("orders", b"1")
        while not done:
            pass
    assert wipe(root, is_named=True, is_sure=False) == f"wiped {root}, with messages: 1, all handled"


def test_a_cluster_and_a_directory_without_a_store_are_left_alone(tmp_path: Path) -> None:
    with pytest.raises(WipeRefused, match="is a cluster"):
        wipe("rocketmq://127.0.0.1:9876", is_named=True, is_sure=True)
    (tmp_path / "lock").touch()
    wipe(tmp_path, is_named=True, is_sure=True)
    assert (tmp_path / "lock").exists()


def test_files_of_others_stay_also_in_directories_that_a_store_has(used: Path) -> None:
    # Given a store with files of a project in it, also where the store has files of its own
    others = [used / name for name in ("config/settings.py", "index/page.html", "commitlog/notes", "consumequeue/a/b")]
    for each in others:
        each.parent.mkdir(parents=True, exist_ok=True)
        each.write_text("mine")

    # When the store is wiped, then they are all that is left
    wipe(used, is_named=True, is_sure=True)
    left = [path for path in used.rglob("*") if path.is_file()]
    assert sorted(left) == sorted([*others, used / "notes.txt"])
