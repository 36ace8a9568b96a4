"""A directory that holds other things than a store: nothing of them is changed, and no store is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient import App, Producer, StoreConfig
from rmqclient.errors import StoreUnusable
from rmqclient.store.recovery.replica import become_replica
from rmqclient.store.settings.replica_mark import ReplicaMark

pytestmark = pytest.mark.guarantee("G89")

WHERE_A_STORE_HAS_ITS_OWN = ("abort", "checkpoint", "identity.json", "lock", "replica.json", "shared", "timer.done")
BESIDE = ("README", "commitlog/notes.txt", "config/settings.py", "consumequeue/notes.txt", "index/page.html")


@pytest.mark.parametrize("name", WHERE_A_STORE_HAS_ITS_OWN)
def test_a_directory_with_files_of_others_is_refused_before_a_byte_is_written(tmp_path: Path, name: str) -> None:
    # Given a directory with one file of a project
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    before = sorted(tmp_path.rglob("*"))

    # When it is opened as a store, in any way that makes one
    for act in (
        lambda: Producer(tmp_path),
        lambda: App(tmp_path).start(),
        lambda: become_replica(tmp_path, StoreConfig.small(), ReplicaMark("a:1", "a:2", 1)),
    ):
        with pytest.raises(StoreUnusable):
            act()

    # Then it is as it was
    assert sorted(tmp_path.rglob("*")) == before
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("name", ["lost+found", "lock", ".allocating-7-00c0ffee"])
def test_what_a_disk_or_a_killed_opening_leaves_is_no_hindrance(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir() if name == "lost+found" else (tmp_path / name).touch()
    with Producer(tmp_path, config=StoreConfig.small()) as producer:
        producer.send("orders", b"")


@pytest.mark.parametrize("name", BESIDE)
def test_files_of_others_lie_beside_those_of_the_store(tmp_path: Path, name: str) -> None:
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    for _ in range(2):
        with Producer(tmp_path, config=StoreConfig.small()) as producer:
            producer.send("orders", b"")
    assert mine.read_text() == "mine"
