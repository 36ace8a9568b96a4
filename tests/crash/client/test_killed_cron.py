"""Schedules: each tick has one message, whoever is killed where while they send it."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from rmqclient.store import MessageStore, open_store
from rmqclient.store.crash_points import CrashPoint
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.crash.processes.scenarios.crons import MINUTES, minutes_of
from tests.support.oracle import reference
from tests.support.oracle.views import bodies, queued_records
from tests.support.stores import SMALL, abandon, body_of

APPEND = [
    point for point in CrashPoint if point < CrashPoint.PROGRESS_ADVANCED and point is not CrashPoint.BLANK_WRITTEN
]
ALL = sorted(body_of(number) for number in range(1 - MINUTES, MINUTES))
"""The grace reaches back to minutes before the first look."""
INDEX = [CrashPoint.INDEX_SLOT_WRITTEN, CrashPoint.INDEX_WRITTEN]


def seen(store: MessageStore) -> list[bytes]:
    """Return what was sent, over all queues, but for the first message, which is no test's."""
    queues = [queue for queue in store.topics.all_queues() if queue.topic == "orders"]
    return sorted(body for queue in queues for body in bodies(queued_records(store, queue)) if body != b"first")


def go_on(store: MessageStore) -> None:
    """Look at all minutes, the first one again included."""
    look_at = minutes_of(store)
    for minute in range(MINUTES):
        look_at(minute)


@pytest.mark.crash
@pytest.mark.guarantee("G36")
@pytest.mark.parametrize("restart", [False, True], ids=["others live", "all die"])
@pytest.mark.parametrize("point", [*APPEND, *INDEX, CrashPoint.CRON_CALLED, CrashPoint.CRON_SENT], ids=str)
@pytest.mark.parametrize("survive", [0, 1])
def test_a_sender_that_is_killed_leaves_each_tick_its_one_message(
    store: MessageStore, root: Path, nursery: Nursery, point: CrashPoint, survive: int, restart: bool
) -> None:
    # Given a process that is killed at some point of a tick
    notes = str(root.with_name("notes"))
    nursery.kill_at_its_point(Order(scenario="tick", root=str(root), notes=notes, point=point.name, survive=survive))
    if restart:
        abandon(store)
        store = open_store(root, SMALL, housekeeping=False)
    # When another one goes on
    go_on(store)
    # Then each minute has had one message
    assert seen(store) == ALL
    store.close()
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G36")
def test_senders_killed_at_any_line_leave_each_tick_its_one_message(
    store: MessageStore, root: Path, nursery: Nursery
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chosen, kills = random.Random(seed), 0
    for life in range(12):
        order = Order(
            scenario="tick",
            root=str(root),
            notes=str(root.with_name(f"notes {life}")),
            kill_at_line=chosen.randrange(60, 340),  # a life that sends its first message has some 370
        )
        status = nursery.run(order)
        assert status in (0, -signal.SIGKILL)
        kills += status != 0
    assert kills
    go_on(store)
    assert seen(store) == ALL
