"""A group that nobody runs is forgotten: in every process, in files, and for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.errors import QueueOwned, UnknownGroup
from rmqclient.metrics import Sampler
from rmqclient.store import MessageQueue, open_store
from rmqclient.store.observe.reading import Reading
from rmqclient.store.settings.config_file import read_consumer_offsets
from tests.groups.membership.test_takeover import wait_for
from tests.support.stores import appender_of

RETRIES = MessageQueue("%RETRY%billing", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with ten messages, of which ``billing`` and ``audit`` have finished some, and a retry that waits."""
    root = tmp_path / "store"
    with Producer(root) as producer, Admin(root) as admin:
        admin.create_topic("orders", 2)
        for number in range(10):
            producer.send(Message("orders", b"%d" % number))
        for group in ("billing", "audit"):
            admin.seek(group, "orders", 3)
    with open_store(root) as store:
        store.groups.find_or_add("billing|laptop", store.topics.slot(MessageQueue("orders", 0)), 2)
        appender_of(store).append(Message(RETRIES.topic, "again"))
        store.groups.find_or_add("billing", store.topics.slot(RETRIES), 0)
    return root


def test_no_process_and_no_file_knows_a_group_that_was_forgotten(root: Path) -> None:
    with open_store(root) as beside, Sampler(root) as sampler, Admin(root) as admin:
        # Given another process that knows the group's slots
        slot = beside.topics.slot(MessageQueue("orders", 0))
        known = beside.groups.find("billing", slot)
        assert known is not None
        assert "billing" in {each.group for each in sampler.sample().group_queues}
        # When the group is forgotten
        stood = admin.remove_group("billing")
        # Then it is said where it stood, and nobody finds it
        assert [(each.topic, each.committed_offset, each.lag, each.member) for each in stood] == [
            ("%RETRY%billing", 0, 1, None),
            ("orders", 3, 2, None),
            ("orders", 2, 3, "laptop"),
            ("orders", 3, 2, None),
        ]
        assert beside.groups.find("billing", slot) is None
        assert [each.group for each in admin.groups()] == ["audit"]
        assert {each.group for each in sampler.sample().group_queues} == {"audit"}
        with Reading(str(root)) as reading:
            assert {each.group for each in reading.group_queues()} == {"audit"}
        # And the file of offsets has the other groups only, whoever writes it next
        beside.offsets.persist()
        assert list(read_consumer_offsets(root)) == [("orders", "audit")]
        with pytest.raises(UnknownGroup, match="billing"):
            admin.remove_group("billing")


@pytest.mark.parametrize("is_reopened", [False, True])
def test_who_joins_under_the_name_later_is_a_new_group(root: Path, *, is_reopened: bool) -> None:
    with Admin(root) as admin:
        admin.remove_group("billing")
        if not is_reopened:
            assert _handled(root) == {b"%d" % number for number in range(10)}
            assert {each.lag for each in admin.lag("billing")} == {0}
    if is_reopened:
        assert _handled(root) == {b"%d" % number for number in range(10)}


def test_a_group_with_members_is_kept(root: Path) -> None:
    with open_store(root) as store, Admin(root) as admin:
        member = store.members().join("billing", "orders", "desk", "*")
        with pytest.raises(QueueOwned, match="stop"):
            admin.remove_group("billing")
        with pytest.raises(QueueOwned, match="desk"):
            store.forget_groups({"billing"})
        assert len(admin.lag("billing")) == 4
        member.leave()
        assert len(admin.remove_group("billing")) == 4


def _handled(root: Path) -> set[bytes]:
    """Return the bodies that a handler of the group gets."""
    bodies: set[bytes] = set()
    app = App(root)

    @app.handler("orders", group="billing")
    def bill(message: ReceivedMessage) -> None:
        bodies.add(message.body)

    consumer = PushConsumer(root, app.handlers)
    consumer.start()
    try:
        with Admin(root) as admin:
            wait_for(lambda: len(bodies) >= 10, "every message")
            wait_for(lambda: {each.lag for each in admin.lag("billing")} == {0}, "nothing is left, and no retry")
        assert consumer.stop(30) == 0
    finally:
        consumer.close()
    return bodies
