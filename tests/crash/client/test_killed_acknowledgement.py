"""What a group is delivered after a consumer is killed, for every place of the acknowledgement at which it can be.

An acknowledgement that returned True is remembered, whoever is killed afterwards, and be it everybody.
"""

from __future__ import annotations

import itertools
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageStore, layout, open_store
from rmqclient.store.crash_points import CrashPoint
from tests.crash.processes.nursery import Nursery, notes_of
from tests.crash.processes.order import Order
from tests.crash.processes.scenarios.progress import PATTERNS, WANTED
from tests.support.oracle import reference
from tests.support.oracle.views import acknowledged_bits, power_cut_image
from tests.support.stores import GROUP, SMALL, SPAN, TOPIC, abandon, appender_of, body_of, grant_of
from tests.support.sweeps import each_seventh, name_of

IN_EVERY_ACKNOWLEDGEMENT = [CrashPoint.ACK_LOCKED, CrashPoint.ACK_MARKED, CrashPoint.ACK_FINISHED]
WHEN_THE_OFFSET_MOVES = [CrashPoint.ACK_ADVANCING, CrashPoint.ACK_CLEARED]
MOVES = {"in order": 1_000, "pairs swapped": 500, "blocks reversed": 10, "first one never": 0}
"""How often the committed offset moves while 1,000 messages are acknowledged one by one."""


def hand_over(store: MessageStore) -> MessageStore:
    """The next owner is in a process that lived all along."""
    return store


def reopen(store: MessageStore) -> MessageStore:
    """Everybody dies, and somebody opens the store again."""
    abandon(store)
    return open_store(store.root, housekeeping=False)


def reopen_twice(store: MessageStore) -> MessageStore:
    """Everybody dies, and whoever opens the store dies as well."""
    return reopen(reopen(store))


def close_and_open(store: MessageStore) -> MessageStore:
    """The last one leaves in good order."""
    store.close()
    return open_store(store.root, housekeeping=False)


ENDINGS = [hand_over, reopen, reopen_twice, close_and_open]

PLACES = [
    (pattern, batch, point, survive)
    for pattern in PATTERNS
    for batch in (1, 7)
    for point in [*IN_EVERY_ACKNOWLEDGEMENT, *WHEN_THE_OFFSET_MOVES]
    for survive in (0, 1, 133)
    if batch == 1 or survive != 133 or point not in WHEN_THE_OFFSET_MOVES
    if point not in WHEN_THE_OFFSET_MOVES or survive < MOVES[pattern]
]

CASES = [
    (*place, ending)
    for number, place in enumerate(PLACES)
    for ending in dict.fromkeys([hand_over, ENDINGS[number % len(ENDINGS)]])
]
"""Each place with a live survivor, and with one of the other endings in turn."""


@pytest.fixture
def filled(store: MessageStore) -> MessageStore:
    """Hold 1,000 messages more than were there."""
    appender = appender_of(store)
    for number in range(1_000):
        appender.append(Message(TOPIC, body_of(number)))
    return store


def counted(store: MessageStore) -> dict[str, int]:
    """Return how many messages of the group were counted, by what became of them."""
    (slot,) = [slot for slot in store.groups if slot.group == GROUP]
    return {name: count for name in layout.COUNTED if (count := slot.load(name))}


@pytest.mark.crash
@pytest.mark.guarantee("G6")
@pytest.mark.guarantee("G7")
@pytest.mark.guarantee("G50")
@pytest.mark.parametrize(("pattern", "batch", "point", "survive", "ending"), each_seventh(CASES), ids=name_of)
def test_an_acknowledged_message_is_not_delivered_again(
    filled: MessageStore,
    root: Path,
    nursery: Nursery,
    pattern: str,
    batch: int,
    point: CrashPoint,
    survive: int,
    ending: Callable[[MessageStore], MessageStore],
) -> None:
    # Given a consumer killed in the middle of an acknowledgement
    order = acknowledge_order(root, pattern, batch, point, survive)
    notes = nursery.kill_at_its_point(order)
    finished = {int(offset) for note in notes for offset in note.split()}
    in_flight = set(offsets_in(pattern, batch)[len(notes)])

    # When the queue has its next owner
    following = ending(filled)
    grant = grant_of(following)

    # Then the table says what is finished, and no bit is left over for a message that the committed offset has passed
    known = acknowledged_bits(following, GROUP) | set(range(grant.committed_offset))
    assert finished <= known <= finished | in_flight
    assert grant.committed_offset not in known
    if point is not CrashPoint.ACK_LOCKED:
        assert in_flight <= known

    # And it gets everything else, in order, each message once, however few it takes at a time
    delivered: list[int] = []
    while batch_taken := [message.queue_offset for message in grant.take(20, SPAN)]:
        delivered += batch_taken
        assert grant.acknowledge_offsets(batch_taken[::-1])
    assert delivered == sorted(set(range(1_001)) - known)
    assert grant.committed_offset == 1_001
    assert grant_of(following).take(SPAN, SPAN) == []

    # And each message was counted once
    assert counted(following) == {"handled": 1_001}
    following.close()
    assert reference.check_store(root) == []


SKIPS = [
    (pattern, point, survive, ending)
    for pattern in ("in order", "pairs swapped", "first one never")
    for point in [*IN_EVERY_ACKNOWLEDGEMENT, *WHEN_THE_OFFSET_MOVES]
    for survive in (0, 1, 6, 7)
    if pattern != "first one never" or point not in WHEN_THE_OFFSET_MOVES or survive == 0
    for ending in [hand_over, ENDINGS[survive % len(ENDINGS)]][: 1 + (survive > 0)]
]


@pytest.mark.crash
@pytest.mark.guarantee("G6")
@pytest.mark.guarantee("G7")
@pytest.mark.guarantee("G15")
@pytest.mark.guarantee("G50")
@pytest.mark.parametrize(("pattern", "point", "survive", "ending"), each_seventh(SKIPS), ids=name_of)
def test_a_consumer_killed_while_it_skips_loses_no_message_that_its_tags_match(
    store: MessageStore,
    root: Path,
    nursery: Nursery,
    pattern: str,
    point: CrashPoint,
    survive: int,
    ending: Callable[[MessageStore], MessageStore],
) -> None:
    # Given runs of unwanted messages between wanted ones, over many files, and a consumer killed while it skips them
    wanted = set(range(3, 901, 17)) | set(range(400, 405))
    appender = appender_of(store)
    for number in range(1, 1_001):
        appender.append(Message(TOPIC, body_of(number), tags=WANTED if number in wanted else "other"))
    order = Order(
        scenario="skip",
        root=str(root),
        notes=str(root.with_name("notes")),
        point=point.name,
        survive=survive,
        batch=5,
        pattern=pattern,
    )
    finished = {int(offset) for note in nursery.kill_at_its_point(order) for offset in note.split()}
    last = max(finished, default=0)

    # When the queue has its next owner
    following = ending(store)
    grant = grant_of(following, tags=[WANTED])

    # Then of the wanted ones nothing is finished but what was, or was about to be, acknowledged
    known = acknowledged_bits(following, GROUP) | set(range(grant.committed_offset))
    in_flight = set(sorted(offset for offset in wanted if offset > last)[:10])
    assert finished <= known & wanted <= finished | in_flight
    assert grant.committed_offset not in known

    # And all others are delivered once, whatever bits were set, and everything is finished then
    delivered: list[int] = []
    while batch := [message.queue_offset for message in grant.take(20, SPAN)]:
        delivered += batch
        assert grant.acknowledge_offsets(batch[::-1])
    assert delivered == sorted(wanted - known)
    assert grant.committed_offset == 1_001
    assert acknowledged_bits(following, GROUP) == set()
    assert counted(following) == {"handled": len(wanted), "skipped": 1_001 - len(wanted)}
    following.close()
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G6")
@pytest.mark.parametrize("survive", [0, 1, 20])
@pytest.mark.parametrize("ending", [hand_over, reopen, close_and_open])
def test_a_killed_write_of_the_offsets_leaves_the_old_ones_or_the_new_ones(
    filled: MessageStore, root: Path, nursery: Nursery, survive: int, ending: Callable[[MessageStore], MessageStore]
) -> None:
    # Given a consumer killed between writing consumerOffset.json and giving it its name
    order = Order(
        scenario="write_offsets",
        root=str(root),
        notes=str(root.with_name("notes")),
        point=CrashPoint.OFFSETS_TEMPORARY.name,
        survive=survive,
    )
    notes = nursery.kill_at_its_point(order)
    assert [int(note) for note in notes] == list(range(1, survive + 1))

    # When everybody is gone, or nobody else is
    following = ending(filled)

    # Then the group goes on behind what was acknowledged, the last one included
    grant = grant_of(following)
    assert grant.committed_offset == survive + 1
    assert [message.queue_offset for message in grant.take(1, SPAN)] == [survive + 1]

    # And the file can be written again
    following.offsets.persist()
    following.close()
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G6")
def test_two_killed_writes_of_the_offsets_in_a_row_lose_no_acknowledgement(tmp_path: Path, nursery: Nursery) -> None:
    status = None
    for line in itertools.count(1, 3):
        # Given a consumer that has written consumerOffset.json, and is killed at some line of writing it again
        root = tmp_path / f"line{line}"
        store = open_store(root, SMALL, housekeeping=False)
        appender_of(store).append_batch([Message(TOPIC, body_of(number)) for number in range(10)])
        grant = grant_of(store)
        assert grant.acknowledge_offsets([2, *range(5, 10)])
        store.offsets.persist()
        order = Order(scenario="write_offsets", root=str(root), notes=f"{root}.first", kill_at_line=line)
        status = nursery.run(order)

        # And another one that is killed before its file has its name, and everybody's death
        second = replace(order, notes=f"{root}.second", kill_at_line=0, point=CrashPoint.OFFSETS_TEMPORARY.name)
        nursery.run(second)
        finished = {2, *range(5, 10)} | set(range(len(notes_of(order))))
        following = reopen(store)

        # Then no acknowledgement is forgotten; of those that were made without a note, any may be
        delivered = {message.queue_offset for message in grant_of(following).take(SPAN, SPAN)}
        assert delivered & finished == set(), f"killed at line {line}"
        following.close()
        shutil.rmtree(root)
        if status != -signal.SIGKILL:
            break
    assert status == 0
    assert line > 50, "so few lines cannot be all of them"


@pytest.mark.guarantee("G7")
def test_an_offset_that_a_power_cut_withdrew_is_withdrawn_for_good(
    store: MessageStore, root: Path, tmp_path: Path
) -> None:
    # Given a group that has finished three messages, of which two do not survive a power cut
    results = [appender_of(store).append(Message(TOPIC, body_of(number))) for number in (1, 2)]
    grant = grant_of(store)
    assert grant.acknowledge_offsets([message.queue_offset for message in grant.take(SPAN, SPAN)])
    store.offsets.persist()
    durable_end = results[0].commit_log_offset
    power_cut_image(root, tmp_path / "first", durable_end, SMALL.commit_log_file_bytes)

    # When others get their numbers, and the power is cut again before a housekeeper wrote any offset
    first = open_store(tmp_path / "first", housekeeping=False)
    assert grant_of(first).committed_offset == 1
    others = [appender_of(first).append(Message(TOPIC, body_of(number))) for number in (3, 4)]
    first.flusher.flush_thorough()
    abandon(first)
    power_cut_image(first.root, tmp_path / "second", others[-1].commit_log_end, SMALL.commit_log_file_bytes)

    # Then they are delivered
    with open_store(tmp_path / "second", housekeeping=False) as second:
        assert [message.body for message in grant_of(second).take(SPAN, SPAN)] == [body_of(3), body_of(4)]


@pytest.mark.crash
@pytest.mark.guarantee("G6")
def test_groups_do_not_disturb_each_other(filled: MessageStore, root: Path, nursery: Nursery) -> None:
    # Given a group that has acknowledged every second message, and another one whose consumer is killed
    bystander = grant_of(filled, "bystander")
    odd = [message.queue_offset for message in bystander.take(SPAN, SPAN)][1::2]
    assert bystander.acknowledge_offsets(odd)
    nursery.kill_at_its_point(acknowledge_order(root, "in order", 1, CrashPoint.ACK_ADVANCING, survive=70))

    # When everybody is gone
    following = reopen(filled)

    # Then both go on where they were
    again = grant_of(following, "bystander").take(SPAN, SPAN)
    assert [message.queue_offset for message in again] == list(range(0, 1_001, 2))
    assert grant_of(following).committed_offset == 71
    following.close()


@pytest.mark.crash
@pytest.mark.guarantee("G8")
def test_a_stopped_owner_that_wakes_up_is_refused(filled: MessageStore, root: Path, nursery: Nursery) -> None:
    # Given an owner who has taken messages, and everybody else's death
    late = grant_of(filled)
    taken = late.take(10, SPAN)
    assert late.acknowledge(taken[0])

    # When the queue is granted to somebody else
    following = grant_of(filled)

    # Then what the first one acknowledges now changes nothing, and it is given nothing
    assert not late.valid
    assert not late.acknowledge(taken[1])
    assert not late.acknowledge_offsets([message.queue_offset for message in taken])
    assert late.take(10, SPAN) == []
    assert following.committed_offset == 1
    assert [message.queue_offset for message in following.take(3, SPAN)] == [1, 2, 3]


def acknowledge_order(root: Path, pattern: str, batch: int, point: CrashPoint, survive: int) -> Order:
    order = Order(
        scenario="acknowledge",
        root=str(root),
        notes=str(root.with_name("notes")),
        point=point.name,
        survive=survive,
        batch=batch,
        pattern=pattern,
    )
    assert notes_of(order) == []
    return order


def offsets_in(pattern: str, batch: int) -> list[list[int]]:
    """Return the acknowledgements that a child makes, in order."""
    offsets = PATTERNS[pattern](list(range(1_001)))
    return [offsets[at : at + batch] for at in range(0, len(offsets), batch)]


@pytest.mark.crash
@pytest.mark.guarantee("G6")
@pytest.mark.parametrize("oldest", [2_600, 3_001])
def test_a_consumer_killed_while_it_steps_over_removed_messages_costs_other_groups_nothing(
    filled: MessageStore, root: Path, nursery: Nursery, oldest: int
) -> None:
    # Given a group that has finished a message out of order, and another one that is behind what retention has removed
    appender = appender_of(filled)
    for number in range(2_000):
        appender.append(Message(TOPIC, body_of(number)))
    assert grant_of(filled, "other").acknowledge_offsets([5])

    # When the consumer of the other one dies while it moves on, and everybody else dies, too
    point = CrashPoint.ACK_CLEARED.name
    notes = str(root.with_name("notes"))
    nursery.kill_at_its_point(Order(scenario="step_over", root=str(root), notes=notes, point=point, target=oldest))

    # Then what the first one has finished is known to the next opening
    with reopen(filled) as again:
        assert acknowledged_bits(again, "other") == {5}
        assert grant_of(again).committed_offset == oldest
