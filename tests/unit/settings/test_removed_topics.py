"""Removed topics: their messages stay hidden when every process has closed the store."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqclient import Producer, PullConsumer
from rmqclient.store import MessageQueue, open_store
from rmqclient.store.inspect.view import LocalView
from rmqclient.store.runtime import shared_state
from rmqclient.store.settings.removed_topics import read_ends, write_ends
from tests.support.written import SMALL

QUEUE = MessageQueue("orders", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A closed store, with a topic that was removed with ten messages and has got three since."""
    with open_store(tmp_path / "store", SMALL, housekeeping=False) as store, Producer(store) as producer:
        producer.create_topic("orders", 1)
        for _ in range(10):
            producer.send("orders", b"old")
        store.topics.remove("orders")
        for _ in range(3):
            producer.send("orders", b"new")
    return tmp_path / "store"


def bodies(root: Path) -> list[bytes]:
    with PullConsumer(root, group="late") as consumer:
        return [bytes(message.body) for message in consumer.messages("orders", wait=0)]


@pytest.mark.parametrize("after_a_boot", [False, True])
def test_a_consumer_that_opens_the_store_and_who_reads_its_files_see_no_removed_message(
    root: Path, after_a_boot: bool
) -> None:
    if after_a_boot:  # the shared memory is gone
        (root / shared_state.FILE_NAME).unlink()
    assert LocalView(root).offsets(QUEUE) == range(10, 13)
    assert bodies(root) == [b"new"] * 3
    assert LocalView(root).offsets(QUEUE) == range(10, 13)
    assert bodies(root) == [b"new"] * 3


def test_a_log_that_has_lost_its_end_hides_no_message_that_comes_later(root: Path) -> None:
    end = LocalView(root).log_range().stop
    write_ends(root, {"orders": end + 1_000})  # as if the last messages before a removal were lost with their host
    assert bodies(root) == []
    assert read_ends(root)["orders"] <= end
    with Producer(root) as producer:
        producer.send("orders", b"later")
    assert bodies(root) == [b"later"]


def test_a_queue_that_a_broker_has_begun_anew_hides_none_of_its_messages(tmp_path: Path) -> None:
    # A broker that deletes a topic gives its queues up, and the next message has queue offset 0: cleanUnusedTopic
    root = tmp_path / "store"
    with open_store(root, SMALL, housekeeping=False) as store, Producer(store) as producer:
        for _ in range(10):
            producer.send("others", b"before")
    write_ends(root, {"orders": LocalView(root).log_range().stop})
    with Producer(root) as producer:
        for _ in range(3):
            producer.send("orders", b"new")
    assert bodies(root) == [b"new"] * 3


def test_a_queue_that_is_built_anew_from_the_log_hides_what_was_removed(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "orders")
    (root / shared_state.FILE_NAME).unlink()
    assert bodies(root) == [b"new"] * 3
