"""What a group meets after a seek was killed, for every step of it, and after the slots of a new group were half made.

A seek that died is one that never was, or one that is completed by whoever comes next; never a mixture, and never does
an old acknowledgement hide a message from the new position on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.inspect.verify import verify
from tests.crash.client.test_killed_acknowledgement import close_and_open, counted, hand_over, reopen
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.support.oracle import reference
from tests.support.oracle.views import acknowledged_bits
from tests.support.stores import GROUP, QUEUE, SPAN, TOPIC, abandon, appender_of, body_of, grant_of
from tests.support.sweeps import crossed

COUNT = 3_001
FINISHED_BELOW = 2_500
FINISHED_AHEAD = [2_510, 2_511, 2_600]
SEEK_POINTS = [CrashPoint.SEEK_FENCED, CrashPoint.SEEK_ANNOUNCED, CrashPoint.SEEK_CLEARED, CrashPoint.SEEK_HALF_MOVED]


@pytest.fixture
def consumed(store: MessageStore) -> MessageStore:
    """Hold 3,001 messages, of which a group has finished most, three of them out of order."""
    appender = appender_of(store)
    for number in range(1, COUNT):
        appender.append(Message(TOPIC, body_of(number)))
    grant = grant_of(store)
    while grant.committed_offset < FINISHED_BELOW:
        taken = [message.queue_offset for message in grant.take(500, SPAN)]
        assert grant.acknowledge_offsets([offset for offset in taken if offset < FINISHED_BELOW])
    assert grant.acknowledge_offsets(FINISHED_AHEAD)
    return store


@pytest.mark.crash
@pytest.mark.guarantee("G16")
@crossed("ending, target, point", [hand_over, reopen, close_and_open], [0, 2_400, 2_505, 3_001], SEEK_POINTS)
def test_a_killed_seek_has_moved_nothing_or_is_completed(
    consumed: MessageStore,
    root: Path,
    nursery: Nursery,
    point: CrashPoint,
    target: int,
    ending: Callable[[MessageStore], MessageStore],
) -> None:
    # Given a consumer with a message in flight, and a seek that is killed
    stale = grant_of(consumed)
    nursery.kill_at_its_point(
        Order(scenario="seek", root=str(root), notes=str(root.with_name("notes")), point=point.name, target=target)
    )
    assert not stale.acknowledge_offsets([2_520]), "the position may be another one already"
    assert verify(root) == []

    # When the queue has its next owner
    following = ending(consumed)
    grant = grant_of(following)

    # Then it is delivered what it would have been without the seek, or everything from the new position on
    nothing_moved = point is CrashPoint.SEEK_FENCED
    begin, ahead = (FINISHED_BELOW, set(FINISHED_AHEAD)) if nothing_moved else (target, set())
    assert grant.committed_offset == begin
    assert acknowledged_bits(following, GROUP) == ahead
    delivered: list[int] = []
    while batch := [message.queue_offset for message in grant.take(500, SPAN)]:
        delivered += batch
        assert grant.acknowledge_offsets(batch)
    assert delivered == [offset for offset in range(begin, COUNT) if offset not in ahead]

    # And each message was counted, once for each time that the group has finished it
    assert counted(following) == {"handled": FINISHED_BELOW + len(FINISHED_AHEAD) + len(delivered)}
    following.close()
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.parametrize("survive", [0, 2])
@pytest.mark.parametrize("ending", [hand_over, reopen])
def test_the_slots_of_a_new_group_are_made_all_or_none(
    store: MessageStore, root: Path, nursery: Nursery, survive: int, ending: Callable[[MessageStore], MessageStore]
) -> None:
    # Given a process that dies while it makes a group that begins at the end of four queues
    notes = str(root.with_name("notes"))
    point = CrashPoint.GROUP_SLOT_FILLED.name
    nursery.kill_at_its_point(Order(scenario="begin", root=str(root), notes=notes, point=point, survive=survive))

    # Then no queue has a slot: the next one that joins would take the others for queues that came later
    with ending(store) as following:
        assert "new" not in following.groups.groups()
        ends = {following.topics.slot(queue): following.topics.max_offset(queue) for queue in [QUEUE]}
        assert following.groups.begin("new", ends)
        assert not following.groups.begin("new", ends)


def test_the_pause_of_a_queue_outlives_everybody(store: MessageStore, root: Path) -> None:
    slot = store.groups.find_or_add(GROUP, store.topics.slot(QUEUE), 0)
    with slot.locked(1_000):
        slot.store("paused", 1)
    abandon(store)
    with open_store(root, housekeeping=False) as again:
        found = again.groups.find(GROUP, again.topics.slot(QUEUE))
        assert found is not None
        assert found.load("paused") == 1
