"""Running: what the slots of handler threads tell after a death, and when they are used again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import Message, Producer, ReceivedMessage
from rmqclient.failures.failure import Failure
from rmqclient.store import (
    Interrupted,
    LentMessages,
    Member,
    MemberTable,
    MessageQueue,
    MessageStore,
    QueueGrant,
    Running,
    TagSet,
    boottime,
    layout,
    open_store,
)
from rmqclient.store.errors import TableFull
from rmqclient.store.runtime.group_table import GroupQueueSlot
from rmqclient.store.runtime.slot_table import SlotTable

QUEUE = MessageQueue("t", 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", housekeeping=False) as opened:
        with Producer(opened) as producer:
            producer.create_topic("t", 1)
            for number in range(40):
                producer.send(Message("t", b"%d" % number))
        yield opened


@pytest.fixture
def table(store: MessageStore) -> MemberTable:
    return store.members()


def begun(
    store: MessageStore, table: MemberTable, client_id: str = "me"
) -> tuple[Member, GroupQueueSlot, QueueGrant, Running]:
    """A member with a thread and the queue, as before its handler runs."""
    member = table.join("g", "t", client_id, "*")
    slot = member.queue_slot(QUEUE)
    epoch = member.take(slot, 10_000, lends=True)
    assert epoch is not None
    (running,) = table.running.claim(member.slot, member.incarnation, 1)
    running.serve(slot.number, epoch)
    return member, slot, store.grants.grant(slot, epoch, TagSet(())), running


def end(member: Member, slot: GroupQueueSlot, grant: QueueGrant) -> None:
    grant.release()
    member.leave()


def test_a_living_member_tells_nothing_and_a_dead_one_what_it_ran(store: MessageStore, table: MemberTable) -> None:
    member, slot, grant, running = begun(store, table)
    first, second = grant.take(2, 100)
    running.begin(first)
    running.begin(second)
    assert table.running.interrupted(slot) == {}
    end(member, slot, grant)
    (death,) = table.running.interrupted(slot)[1]
    assert table.running.interrupted(slot).keys() == {1}
    assert (death.begun, death.client_id) == (1, "me")


def test_a_call_for_which_a_supervisor_ended_the_process_is_told_and_no_other_one(
    store: MessageStore, table: MemberTable
) -> None:
    # Given two members of a process, each with a message in its handler
    (one, slot, grant, running), overdue = begun(store, table), store.workers()
    first, second = grant.take(2, 100)
    running.begin(first)
    (other,) = table.running.claim(one.slot, one.incarnation, 1)
    other.serve(slot.number, grant.epoch)

    # When a supervisor ends it for what takes longer than nothing, before the other message begins
    worker = overdue.claim("worker-1")
    overdue.assign(worker, os.getpid())
    overdue.mark_overdue(worker, 0.0)
    other.begin(second)
    end(one, slot, grant)

    # Then the first alone is told to have taken too long
    deaths = table.running.interrupted(slot)
    assert [each.overdue_s is not None for each in (*deaths[0], *deaths[1])] == [True, False]
    failures = [Failure.died(each, first) for each in (*deaths[0], *deaths[1])]
    assert [each.error for each in failures] == ["time limit", "death"]


def test_a_call_of_a_process_of_another_container_with_the_same_pid_is_not_told(
    store: MessageStore, table: MemberTable
) -> None:
    # Given a message in its handler, and another process that has the same number in its own container
    member, slot, grant, running = begun(store, table)
    (message,) = grant.take(1, 100)
    running.begin(message)
    with subprocess.Popen(["sleep", "60"]) as child:
        (number,) = (each for each in range(store.state.running_count) if running_slots(store).read(each)["attempt"])
        running_slots(store).store(number, "pid", child.pid)

        # When the supervisor of that one ends it for what takes longer than nothing
        worker = (overdue := store.workers()).claim("worker-1")
        overdue.assign(worker, child.pid)
        overdue.mark_overdue(worker, 0.0)
        child.kill()
    end(member, slot, grant)

    # Then the death of this one has another cause
    ((death,),) = table.running.interrupted(slot).values()
    assert death.overdue_s is None


def running_slots(store: MessageStore) -> SlotTable:
    return SlotTable(store.state, layout.RUNNING_SLOT, layout.RUNNING_TABLE_AT, layout.RUNNING_SLOTS)


def test_of_a_message_that_holds_its_queue_only_the_last_call_that_took_too_long_keeps_a_slot(
    store: MessageStore, table: MemberTable
) -> None:
    # Given a message of a handler that keeps the order, so that the queue counts its attempts
    worker = (overdue := store.workers()).claim("worker-1")
    overdue.assign(worker, os.getpid())
    told = []
    for client_id in ("first", "second", "third"):
        member, slot, grant, running = begun(store, table, client_id)
        (message,) = grant.take(1, 100)
        assert grant.begin(message)
        running.show([message])

        # When its supervisor ends its process for the time limit
        overdue.mark_overdue(worker, 0.0)
        end(member, slot, grant)

        # Then the next owner knows the attempt and the cause, and the call before it is forgotten
        told += [(each.begun, each.overdue_s is not None) for each in table.running.interrupted(slot)[0]]
    assert told == [(1, True), (2, True), (3, True)]


def test_a_thread_at_rest_and_an_acknowledged_message_are_no_deaths(store: MessageStore, table: MemberTable) -> None:
    member, slot, grant, running = begun(store, table)
    first, second, third = grant.take(3, 100)
    running.begin(first)
    running.rest()
    end(member, slot, grant)
    assert table.running.interrupted(slot) == {}

    member, slot, grant, running = begun(store, table)
    running.begin(second)
    grant.acknowledge(second)
    end(member, slot, grant)
    assert table.running.interrupted(slot) == {}
    assert third.delivery_attempt == 1


def test_of_a_batch_everything_that_is_not_finished_was_interrupted(store: MessageStore, table: MemberTable) -> None:
    member, slot, grant, running = begun(store, table)
    batch = grant.take(5, 100)
    running.begin_batch(batch)
    grant.acknowledge(batch[1])
    end(member, slot, grant)
    assert table.running.interrupted(slot).keys() == {0, 2, 3, 4}


def test_each_death_is_told_with_the_last_one_last(store: MessageStore, table: MemberTable) -> None:
    message: ReceivedMessage | None = None
    deaths: list[Interrupted] = []
    for client_id in ("first", "second", "third"):
        member, slot, grant, running = begun(store, table, client_id)
        message = message.redelivered() if message else grant.take(1, 100)[0]
        running.begin(message)
        end(member, slot, grant)
        deaths = table.running.interrupted(slot)[0]
    assert [death.begun for death in deaths] == [1, 2, 3]


def test_a_message_with_any_number_of_deaths_keeps_some_slots(store: MessageStore, table: MemberTable) -> None:
    message: ReceivedMessage | None = None
    deaths: list[Interrupted] = []
    for life in range(50):
        member, slot, grant, running = begun(store, table, f"life-{life}")
        message = message.redelivered() if message else grant.take(1, 100)[0]
        running.begin(message)
        end(member, slot, grant)
        deaths = table.running.interrupted(slot)[0]
    assert deaths[-1].begun == 50
    assert store.state.running_count < 20


def test_a_slot_that_tells_of_an_unfinished_message_is_kept_until_it_is_finished(
    store: MessageStore, table: MemberTable
) -> None:
    member, slot, grant, running = begun(store, table)
    (message,) = grant.take(1, 100)
    running.begin(message)
    end(member, slot, grant)
    member, slot, grant, _ = begun(store, table)
    assert store.state.running_count == 2, "the dead one's slot is not taken"
    grant.acknowledge(message)
    table.running.claim(member.slot, member.incarnation, 1)
    assert store.state.running_count == 2, "now it is"


def test_a_thread_that_outlives_its_membership_does_not_touch_the_slot_of_another(
    store: MessageStore, table: MemberTable
) -> None:
    member, slot, grant, late = begun(store, table)
    (message,) = grant.take(1, 100)
    late.begin(message)
    end(member, slot, grant)
    member, slot, grant, running = begun(store, table)
    grant.acknowledge(message)
    (second,) = grant.take(1, 100)
    (taken_over,) = table.running.claim(member.slot, member.incarnation, 1)
    taken_over.serve(slot.number, grant.epoch)
    taken_over.begin(second)
    late.rest()
    late.release()
    end(member, slot, grant)
    assert table.running.interrupted(slot).keys() == {1}
    running.rest()


def test_a_full_table_says_so(store: MessageStore, table: MemberTable) -> None:
    member = table.join("g", "t", "me", "*")
    table.running.claim(member.slot, member.incarnation, layout.RUNNING_SLOTS - 1)
    with pytest.raises(TableFull, match="2 handler threads more"):
        table.running.claim(member.slot, member.incarnation, 2)
    table.running.claim(member.slot, member.incarnation, 1)


@pytest.mark.parametrize("copies", [1, 2])
def test_what_was_running_is_known_after_all_processes_died(tmp_path: Path, copies: int) -> None:
    root = tmp_path / "store"
    with open_store(root, housekeeping=False) as store:
        with Producer(store) as producer:
            producer.create_topic("t", 1)
            for _ in range(3):
                producer.send(Message("t", b""))
        _, slot, grant, running = begun(store, store.members())
        messages = grant.take(3, 100)
        running.begin(messages[2].redelivered())
    for _ in range(copies):
        with open_store(root, housekeeping=False) as store:
            table = store.members()
            (slot,) = store.groups
            (death,) = table.running.interrupted(slot)[2]
            assert death == Interrupted(begun=2, client_id="", pid=death.pid)
            assert death.pid > 0


@pytest.mark.guarantee("G126")
def test_a_call_keeps_its_message_under_the_epoch_of_the_next_owner(store: MessageStore, table: MemberTable) -> None:
    # Given a member that runs a message, and has released its queue
    _, slot, grant, running = begun(store, table)
    first, second, third = grant.take(3, 100)
    running.begin(first)
    assert not grant.is_between(running)
    grant.release()

    # When another one takes it
    other = table.join("g", "t", "other", "*")
    later = taken(store, other, slot)
    lent = LentMessages(table.lending, slot, later, 10_000)

    # Then the message is left to the call, which alone can acknowledge it, and the others are not
    assert lent.look() == {0}
    assert not grant.acknowledge(first)
    assert grant.lent_to(running).acknowledge(first)
    assert lent.look() == frozenset()
    assert slot.committed_offset == 1
    assert not grant.acknowledge(second)
    assert later.acknowledge(third)


@pytest.mark.guarantee("G126")
def test_a_message_that_was_taken_back_is_not_acknowledged_by_its_call(store: MessageStore, table: MemberTable) -> None:
    member, slot, grant, running = begun(store, table)
    (first,) = grant.take(1, 100)
    running.begin(first)
    grant.release()
    lent = LentMessages(table.lending, slot, taken(store, table.join("g", "t", "other", "*"), slot), 10_000)
    assert lent.look() == {0}

    # When the member has not been heard for longer than the lease
    table.slots.store(member.slot, "heartbeat", boottime() - 11_000_000_000)
    assert lent.look() == frozenset()

    # Then it is too late
    member.beat()
    assert not grant.lent_to(running).acknowledge(first)
    assert slot.committed_offset == 0
    assert table.running.interrupted(slot) == {}


@pytest.mark.guarantee("G126")
def test_the_owner_after_the_next_one_and_a_member_that_died_while_it_took_the_queue_leave_it_to_the_call(
    store: MessageStore, table: MemberTable
) -> None:
    _, slot, grant, running = begun(store, table)
    (first,) = grant.take(1, 100)
    running.begin(first)
    grant.release()
    other = table.join("g", "t", "other", "*")
    taken(store, other, slot).release()
    table.lending.lend(slot, slot.load("epoch") + 1, 10_000, None, lends=True)  # and no more
    later = taken(store, other, slot)
    assert LentMessages(table.lending, slot, later, 10_000).look() == {0}
    assert grant.lent_to(running).give_back([0], dead_lettered=False)
    assert slot.load("retried") == 1


@pytest.mark.guarantee("G126")
def test_an_owner_that_stands_still_loses_its_own_calls_and_none_of_a_process_with_the_same_number(
    store: MessageStore, table: MemberTable
) -> None:
    # Given a message that runs in one consumer, and another consumer that has the queue, and whose lease runs out
    _, slot, grant, running = begun(store, table)
    (first, _) = grant.take(2, 100)
    running.begin(first)
    grant.release()
    other = store.members()
    _, _, later, later_running = begun(store, other, "other")
    (*_, third) = later.take(3, 100)
    later_running.begin(third)
    slot.store("lease_until", 1)

    # When a third one takes it, Then the first one keeps its message, and the second one does not
    last = taken(store, store.members().join("g", "t", "third", "*"), slot)
    assert LentMessages(table.lending, slot, last, 10_000).look() == {0}
    assert grant.lent_to(running).acknowledge(first)
    assert not later.lent_to(later_running).acknowledge(third)


@pytest.mark.guarantee("G126")
def test_a_member_that_has_its_queue_again_does_not_take_back_what_its_thread_begins_by_the_new_grant(
    store: MessageStore, table: MemberTable
) -> None:
    # Given a thread that runs a message of the grant before
    member, slot, grant, running = begun(store, table)
    first, second = grant.take(2, 100)
    running.begin(first)
    grant.release()
    epoch = member.take(slot, 10_000, lends=True)
    assert epoch is not None
    later = store.grants.grant(slot, epoch, TagSet(()))
    lent = LentMessages(table.lending, slot, later, 10_000)
    assert lent.look() == {0}

    # When it ends, and begins one of the new grant, before anybody looks
    assert grant.lent_to(running).acknowledge(first)
    running.rest()
    running.serve(slot.number, epoch)
    running.begin(second)
    assert lent.look() == frozenset()

    # Then that one is left to it, too, when the queue goes on
    later.release()
    last = taken(store, table.join("g", "t", "other", "*"), slot)
    assert LentMessages(table.lending, slot, last, 10_000).look() == {1}


@pytest.mark.guarantee("G126")
def test_an_owner_that_lost_the_queue_takes_nothing_back_that_the_next_one_left_to_a_call(
    store: MessageStore, table: MemberTable
) -> None:
    _, slot, grant, running = begun(store, table)
    (first,) = grant.take(1, 100)
    running.begin(first)
    grant.release()
    other = store.members().join("g", "t", "other", "*")
    lent = LentMessages(table.lending, slot, taken(store, other, slot), 10_000)
    slot.store("lease_until", 1)
    taken(store, store.members().join("g", "t", "third", "*"), slot)
    assert lent.look() == {0}
    assert grant.lent_to(running).acknowledge(first)


@pytest.mark.guarantee("G126")
@pytest.mark.parametrize("how", ["lost", "seek", "ended"])
def test_what_a_member_lost_without_releasing_it_or_by_a_seek_is_not_lent(
    store: MessageStore, table: MemberTable, how: str
) -> None:
    _, slot, grant, running = begun(store, table)
    (first,) = grant.take(1, 100)
    running.begin(first)
    if how == "lost":
        slot.store("lease_until", 1)
    elif how == "seek":
        with slot.locked(1_000):
            slot.seek(0)
    else:
        running.rest()
        grant.release()
    later = taken(store, table.join("g", "t", "other", "*"), slot)
    assert LentMessages(table.lending, slot, later, 10_000).look() == frozenset()
    assert not grant.lent_to(running).acknowledge(first)


def test_a_thread_is_between_two_calls_until_its_slot_names_the_next_one(
    store: MessageStore, table: MemberTable
) -> None:
    _, _, grant, running = begun(store, table)
    first, second = grant.take(2, 100)
    assert grant.is_between(running)
    running.begin(first)
    assert not grant.is_between(running)
    grant.acknowledge(first)
    assert grant.is_between(running)
    running.begin(second)
    assert not grant.is_between(running)
    running.fail(1)
    assert grant.is_between(running)


def taken(store: MessageStore, member: Member, slot: GroupQueueSlot) -> QueueGrant:
    epoch = member.take(slot, 10_000, lends=True)
    assert epoch is not None
    return store.grants.grant(slot, epoch, TagSet(()))
