"""Broadcast: every member gets everything once, under a name that outlives its process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import App, Message, MessageQueue, Producer, PullConsumer, ReceivedMessage
from rmqclient.admin import Admin
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.errors import ClientIdInUse, HandlerError, InvalidName
from rmqclient.store import MessageStore, open_store
from rmqclient.store.settings import config_file
from tests.groups.membership.test_takeover import wait_for

NAMES = [f"m{number}" for number in range(40)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", housekeeping=False) as opened:
        yield opened


class Member:
    """A member of broadcast group ``g``, and what its handler got, bad messages included."""

    def __init__(self, store: MessageStore, name: str | None, group: str = "g") -> None:
        self.got: list[str] = []
        app = App(store.root)

        @app.handler("t", group=group, broadcast=True)
        def handle(message: ReceivedMessage) -> None:
            self.got.append(message.body.decode())
            if message.body == b"bad":
                raise RuntimeError("cannot")

        self.consumer = PushConsumer(store, app.handlers, client_id=name)
        self.consumer.start()

    def close(self) -> None:
        self.consumer.stop_taking()
        self.consumer.drain(10)
        self.consumer.close()


def send(store: MessageStore, *names: str) -> None:
    with Producer(store) as producer:
        producer.create_topic("t", 4)
        for name in names:
            producer.send(Message("t", name.encode()))


def is_settled(store: MessageStore) -> bool:
    return bool(Admin(store).lag("g")) and all(queue.lag == 0 for queue in Admin(store).lag("g"))


@pytest.mark.guarantee("G17")
def test_every_member_gets_every_message_once(store: MessageStore) -> None:
    send(store, *NAMES[:20])
    members = [Member(store, name) for name in ("cache-1", "cache-2", "cache-3")]
    send(store, *NAMES[20:])
    wait_for(lambda: is_settled(store), "everything is handled by all")
    for member in members:
        assert sorted(member.got) == sorted(NAMES)
        member.close()


@pytest.mark.guarantee("G17")
def test_a_member_that_was_away_goes_on_where_it_was_and_the_others_do_not_wait(store: MessageStore) -> None:
    # Given two members, of which one ends
    send(store, "a", "b")
    stays, leaves = Member(store, "cache-1"), Member(store, "cache-2")
    wait_for(lambda: is_settled(store), "both have everything")
    leaves.close()

    # When messages come while it is away, and it comes back
    send(store, "c", "d")
    wait_for(lambda: len(stays.got) == 4, "the other one has them")
    back = Member(store, "cache-2")
    wait_for(lambda: is_settled(store), "both have everything")

    # Then it gets those alone
    assert sorted(back.got) == ["c", "d"]
    for member in (stays, back):
        member.close()


def test_a_failure_is_dropped_and_never_tried_again(store: MessageStore, caplog: pytest.LogCaptureFixture) -> None:
    send(store, "good", "bad", "better")
    member = Member(store, "cache-1")
    wait_for(lambda: is_settled(store), "everything is done with")
    member.close()
    assert sorted(member.got) == ["bad", "better", "good"]
    assert store.topics.topics() == ["t"], "there is no retry topic, and no dead letter topic"
    assert [record.message for record in caplog.records if "is dropped" in record.message]


def test_a_coroutine_that_fails_is_dropped_too(store: MessageStore) -> None:
    send(store, "good", "bad")
    app, got = App(store.root), []

    @app.handler("t", group="g", broadcast=True)
    async def handle(message: ReceivedMessage) -> None:
        got.append(message.body.decode())
        if message.body == b"bad":
            raise RuntimeError("cannot")

    consumer = PushConsumer(store, app.handlers, member_name="cache-1")
    consumer.start()
    wait_for(lambda: is_settled(store), "everything is done with")
    consumer.stop_taking()
    consumer.drain(10)
    assert (sorted(got), consumer.counters.failed) == (["bad", "good"], 1)
    consumer.close()


def test_two_processes_cannot_be_the_same_member(store: MessageStore) -> None:
    send(store)
    first = Member(store, "cache-1")
    with pytest.raises(ClientIdInUse, match=r"group 'g\|cache-1', topic 't': process \d+ is a member as 'cache-1'"):
        Member(store, "cache-1")
    Member(store, "cache-1", group="other").close()
    first.close()
    Member(store, "cache-1").close()


def test_a_member_has_a_name_that_can_be_one(store: MessageStore) -> None:
    with pytest.raises(HandlerError, match=r'a name that this process has again after a restart.*client_id="cache-1"'):
        Member(store, None)
    with pytest.raises(InvalidName, match=r"member '10\.0\.0\.1@x'"):
        Member(store, "10.0.0.1@x")
    with pytest.raises(InvalidName, match="both names together have 127 characters, and at most 126 fit"):
        Member(store, "m" * 7, group="g" * 120)
    Member(store, "m" * 7, group="g" * 119).close()


def test_the_command_line_sees_one_group_with_the_offsets_of_each_member(store: MessageStore) -> None:
    send(store, *NAMES[:4])
    first = Member(store, "cache-1")
    wait_for(lambda: is_settled(store), "everything is handled")
    first.close()
    second = Member(store, "cache-2")
    wait_for(lambda: is_settled(store), "everything is handled")
    (info,) = Admin(store).groups()
    assert (info.group, info.topics, len(info.members), info.lag) == ("g", ("t",), 1, 0)
    rows = [(queue.queue_id, queue.group, queue.member, queue.owner) for queue in Admin(store).lag("g")]
    each = [(queue_id, "g", f"cache-{n}", "cache-2" if n == 2 else None) for queue_id in range(4) for n in (1, 2)]
    assert rows == each

    # And a seek moves all of them
    moved = Admin(store).seek("g", "t", "earliest")
    assert [(info.member, info.to_offset) for info in moved if info.queue_id == 0] == [("cache-1", 0), ("cache-2", 0)]
    wait_for(lambda: len(second.got) == 8, "the one that runs gets everything again")
    second.close()
    third = Member(store, "cache-1")
    wait_for(lambda: len(third.got) == 4, "and so does the one that did not")
    third.close()


def test_the_offsets_are_entries_that_a_broker_reads_as_those_of_other_groups(store: MessageStore) -> None:
    send(store, *NAMES[:8])
    member = Member(store, "cache-1")
    wait_for(lambda: is_settled(store), "everything is handled")
    member.close()
    PullConsumer(store, group="g").commit(MessageQueue("t", 0), 1)  # a group of the plain name is another one
    store.offsets.persist()
    text = (store.root / "config" / "consumerOffset.json").read_text()
    table = json.loads(text)["offsetTable"]
    assert set(table) == {"t@g", "t@g|cache-1"}
    assert sum(table["t@g|cache-1"].values()) == 8
    assert set(config_file.read_consumer_offsets(store.root)) == {("t", "g"), ("t", "g|cache-1")}


def test_two_consumers_of_one_open_store_have_slots_of_their_own(store: MessageStore) -> None:
    send(store)
    first, second = Member(store, "cache-1"), Member(store, "cache-2")
    slots = {member.slot for member in store.members().roll.all() if member.topic == "t"}
    assert len(slots) == 2
    for member in (first, second):
        member.close()
