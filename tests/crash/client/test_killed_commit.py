"""Where a group stands after a commit of a remote client was killed, forwards and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageStore
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.inspect.verify import verify
from tests.crash.client.test_killed_acknowledgement import hand_over, reopen
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.support.oracle import reference
from tests.support.oracle.views import acknowledged_bits
from tests.support.stores import GROUP, SPAN, TOPIC, appender_of, grant_of
from tests.support.sweeps import crossed

END = 6_001
TARGET = 500
AHEAD = 70

PLACES = [
    (CrashPoint.ACK_LOCKED, 0, 0),
    (CrashPoint.ACK_ADVANCING, 0, 2_048),
    (CrashPoint.ACK_ADVANCING, 2, END),
    (CrashPoint.ACK_CLEARED, 1, 4_096),
    (CrashPoint.ACK_FINISHED, 0, END),
    (CrashPoint.ACK_LOCKED, 1, END),
    (CrashPoint.ACK_CLEARED, 3, END),
    (CrashPoint.COMMIT_HALF_BACK, 0, END),
    (CrashPoint.COMMIT_HALF_BACK, 1, END - 2_048),
    (CrashPoint.ACK_FINISHED, 1, TARGET),
]
"""Where a client dies that commits the end of the queue, then a position far back; and where the group then stands."""


@pytest.fixture
def filled(store: MessageStore) -> MessageStore:
    """Hold 6,001 messages, of which a group has finished one ahead of the others."""
    appender = appender_of(store)
    for _ in range(100):
        appender.append_batch([Message(TOPIC, b"")] * 60)
    assert grant_of(store).acknowledge_offsets([AHEAD])
    return store


@pytest.mark.crash
@crossed("ending, place", [hand_over, reopen], PLACES)
def test_a_killed_commit_leaves_the_group_where_a_step_ended(
    filled: MessageStore,
    root: Path,
    nursery: Nursery,
    ending: Callable[[MessageStore], MessageStore],
    place: tuple[CrashPoint, int, int],
) -> None:
    point, survive, expected = place
    # Given a client whose commit is killed
    notes = str(root.with_name("notes"))
    nursery.kill_at_its_point(
        Order(scenario="commit", root=str(root), notes=notes, point=point.name, survive=survive, target=TARGET)
    )
    assert verify(root) == []

    # When the queue has its next owner
    following = ending(filled)
    grant = grant_of(following)

    # Then it goes on from there, and what was finished ahead of the group counts until the group has passed it
    assert grant.committed_offset == expected
    assert acknowledged_bits(following, GROUP) == ({AHEAD} if expected == 0 else set())
    delivered = [message.queue_offset for message in grant.take(100, SPAN)]
    assert delivered == [offset for offset in range(expected, END) if expected or offset != AHEAD][:100]
    following.close()
    assert reference.check_store(root) == []
