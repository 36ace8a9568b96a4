"""Who may join a group, and who finds out that a member has died."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from rmqclient import App
from rmqclient.allocation import hashed
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import Member, MemberInfo, MemberTable, MessageQueue, MessageStore, boottime, layout, open_store
from rmqclient.store.errors import ClientIdInUse, InvalidName, MembershipRefused, SubscriptionMismatch
from rmqclient.store.files.file_lock import MEMBER_BYTES
from rmqclient.store.runtime.shared_state import member_slot_at
from tests.groups.membership.test_takeover import members, wait_for
from tests.groups.processes.member import GROUP, TOPIC

TAGS = "tags *; allocation averaged"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def table(store: MessageStore) -> MemberTable:
    return store.members()


def handle(message: object) -> None: ...


def kill(store: MessageStore, member: Member) -> None:
    """Do what the kernel does when the process of a member is killed."""
    store.lock.unlock(MEMBER_BYTES + member.slot)


def word(store: MessageStore, member: Member, field: str) -> int:
    return store.state.words.load(member_slot_at(member.slot) + layout.MEMBER_SLOT.at[field])


# --- subscriptions -----------------------------------------------------------------------------------------------


@pytest.mark.guarantee("G13")
def test_a_member_with_another_subscription_is_refused_by_an_error_that_names_both(table: MemberTable) -> None:
    table.join(GROUP, TOPIC, "old", "tags paid; allocation averaged")
    with pytest.raises(SubscriptionMismatch) as raised:
        table.join(GROUP, TOPIC, "new", "tags refunded; allocation averaged")
    for part in ("'old'", "(tags paid;", "'new'", "(tags refunded;", "a new group, or stop the old workers first"):
        assert part in str(raised.value)
    assert [member.client_id for member in table.roll.all()] == ["old"]


def test_other_groups_other_topics_and_members_that_left_or_died_do_not_matter(
    store: MessageStore, table: MemberTable
) -> None:
    table.join("other", TOPIC, "a", "tags paid")
    table.join(GROUP, "other", "a", "tags paid")
    table.join(GROUP, TOPIC, "a", "tags paid").leave()
    dead = table.join(GROUP, TOPIC, "b", "tags paid")
    kill(store, dead)
    assert table.join(GROUP, TOPIC, "b", TAGS).incarnation > dead.incarnation


def test_a_long_subscription_is_compared_to_its_end(table: MemberTable) -> None:
    long = "where '" + " or ".join(f"ä = {number}" for number in range(100))
    table.join(GROUP, TOPIC, "a", long + "1'")
    table.join(GROUP, TOPIC, "b", long + "1'")
    with pytest.raises(SubscriptionMismatch, match="sha256"):
        table.join(GROUP, TOPIC, "c", long + "2'")
    assert all(len(member.subscription.encode()) <= 512 for member in table.roll.all())


def test_of_members_that_join_at_the_same_time_all_that_get_in_have_the_same_subscription(store: MessageStore) -> None:
    with ExitStack() as stack:
        stores = [stack.enter_context(open_store(store.root, housekeeping=False)) for _ in range(4)]
        for turn in range(25):
            begin = threading.Barrier(len(stores))

            def join(number: int, turn: int = turn, begin: threading.Barrier = begin) -> Member | None:
                begin.wait()
                try:
                    return stores[number].members().join(f"g{turn}", TOPIC, str(number), f"tags t{number % 2}")
                except MembershipRefused:
                    return None

            with ThreadPoolExecutor(len(stores)) as pool:
                joined = [each for each in pool.map(join, range(len(stores))) if each is not None]
            assert len(joined) == 2
            assert len({int(member.client_id) % 2 for member in joined}) == 1


def test_a_subscription_says_everything_that_members_must_have_the_same(tmp_path: Path) -> None:
    app = App(tmp_path)
    app.handler("a", group=GROUP)(handle)
    app.handler("b", group=GROUP, tags="paid || refunded", threads=4, allocation=hashed(100))(handle)
    app.handler("c", group=GROUP, allocation=first_takes_all)(handle)
    assert [each.subscription for each in app.handlers] == [
        "tags *; allocation averaged",
        "tags paid || refunded; allocation hash(100)",
        f"tags *; allocation {__name__}:first_takes_all",
    ]


def first_takes_all(members: Sequence[str], queues: Sequence[MessageQueue]) -> dict[str, list[MessageQueue]]:
    return {members[0]: list(queues)}


def test_a_consumer_that_one_group_refuses_has_joined_none(store: MessageStore, table: MemberTable) -> None:
    app = App(store.root)
    app.handler("first", group=GROUP)(handle)
    app.handler("second", group=GROUP)(handle)
    table.join(GROUP, "second", "old", "tags paid")
    with pytest.raises(SubscriptionMismatch):
        PushConsumer(store, app.handlers).start()
    assert [member.client_id for member in table.roll.all()] == ["old"]


# --- client ids --------------------------------------------------------------------------------------------------


@pytest.mark.guarantee("G13")
def test_a_client_id_that_a_living_member_of_another_process_has_is_refused(store: MessageStore) -> None:
    with members(store, 1) as (other,):
        (member,) = of_topic(store)
        with pytest.raises(ClientIdInUse, match=f"process {other.process.pid} is a member as '{member.client_id}'"):
            store.members().join(GROUP, TOPIC, member.client_id, TAGS)

        # A stopped process may go on, so its name stays its own; a killed one's is free at once
        other.send_signal(signal.SIGSTOP)
        with pytest.raises(ClientIdInUse):
            store.members().join(GROUP, TOPIC, member.client_id, TAGS)
        other.send_signal(signal.SIGKILL)
        other.process.wait(20)
        assert store.members().join(GROUP, TOPIC, member.client_id, TAGS).client_id == member.client_id


@pytest.mark.parametrize("client_id", ["", "x" * 128, "ä" * 64, "line\nbreak", "\ud800"])
def test_a_client_id_that_cannot_be_one_is_refused_before_anything_is_joined(
    store: MessageStore, client_id: str
) -> None:
    with pytest.raises(InvalidName, match="give 1 to 127, all printable"):
        PushConsumer(store, [], client_id=client_id)


# --- the dead ----------------------------------------------------------------------------------------------------


def test_consumers_that_share_one_open_store_do_not_take_each_other_for_dead(store: MessageStore) -> None:
    tables = [store.members() for _ in range(3)]
    joined = [table.join(GROUP, TOPIC, str(number), TAGS) for number, table in enumerate(tables)]
    assert len({member.slot for member in joined}) == 3
    assert not any(table.watch(member.slot) for table, member in zip(tables, joined, strict=True))
    assert [seat.client_id for seat in tables[0].roll.counted(GROUP, TOPIC, 10_000)] == ["0", "1", "2"]


def test_the_member_before_a_dead_one_finds_that_out_and_all_others_see_it_without_a_probe(
    store: MessageStore, table: MemberTable
) -> None:
    # Given four members, of which two next to each other are dead
    joined = [table.join(GROUP, TOPIC, name, TAGS) for name in "abcd"]
    for member in joined[1:3]:
        kill(store, member)
    assert len(table.roll.counted(GROUP, TOPIC, 10_000)) == 4

    # When those look that are not before a dead one, nothing is found
    assert not table.watch(joined[3].slot)

    # When the one before them looks, everybody is told, and the slots are free
    heard = table.bell.heard()
    assert table.watch(joined[0].slot)
    assert table.bell.heard() != heard
    assert [seat.client_id for seat in table.roll.counted(GROUP, TOPIC, 10_000)] == ["a", "d"]
    assert [word(store, member, "incarnation") % 2 for member in joined] == [1, 0, 0, 1]


def test_a_member_behind_a_stopped_one_is_watched_by_the_one_before_that(
    store: MessageStore, table: MemberTable
) -> None:
    joined = [table.join(GROUP, TOPIC, name, TAGS) for name in "abc"]
    heartbeat = member_slot_at(joined[1].slot) + layout.MEMBER_SLOT.at["heartbeat"]
    kill(store, joined[2])
    assert not table.watch(joined[0].slot), "b watches"
    store.state.words.store(heartbeat, boottime() - 2_000_000_000)
    assert table.watch(joined[0].slot), "b may be stopped"


@pytest.mark.guarantee("G14")
def test_a_spare_takes_over_when_an_owner_is_killed(store: MessageStore) -> None:
    # Given more members than queues
    store.topics.create(TOPIC, 2)
    with members(store, 4):
        first_two = sorted(member.client_id for member in of_topic(store))[:2]
        wait_for(lambda: owners(store) == set(first_two), "the first two members have a queue each")
        before = owners(store)

        # When an owner is killed
        killed = next(member for member in of_topic(store) if member.client_id in before)
        assert sum(member.client_id not in before for member in of_topic(store)) == 2
        epochs = [slot.load("epoch") for slot in store.groups]
        os.kill(killed.pid, signal.SIGKILL)

        # Then a spare has its queue, and the other queue has not moved twice
        took = wait_for(lambda: killed.client_id not in owners(store) and len(owners(store)) == 2, "a spare took over")
        assert took < 1.0
        assert sum(slot.load("epoch") for slot in store.groups) <= sum(epochs) + 2


def of_topic(store: MessageStore) -> list[MemberInfo]:
    """Return the members without those of the group's retry topic."""
    return [member for member in store.members().roll.all() if member.topic == TOPIC]


def owners(store: MessageStore) -> set[str]:
    table = store.members()
    return {member.client_id for slot in store.groups if (member := table.roll.owner(slot)) and member.topic == TOPIC}
