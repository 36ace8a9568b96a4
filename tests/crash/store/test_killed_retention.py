"""A process killed at every step of a removal: others read and take on, finish it, and recovery finds a right store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.inspect.verify import verify
from rmqclient.store.settings.disk import Usage
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.support.oracle import reference
from tests.support.stores import QUEUE, SMALL, SPAN, TOPIC, abandon, appender_of, body_of, grant_of, number_of

STEPS = [point for point in CrashPoint if point.name.startswith("RETENTION_")]

KILLS = [
    pytest.param(point, survive, id=f"{point.name.lower()}-{survive}")
    for point in STEPS
    for survive in ((0, 4) if point in STEPS[:2] else (0,))
]


def order_of(root: Path, point: CrashPoint, survive: int) -> Order:
    notes = str(root.with_name("notes"))
    return Order(scenario="clean", root=str(root), notes=notes, point=point.name, survive=survive, body_bytes=1_500)


@pytest.mark.crash
@pytest.mark.guarantee("G12")
@pytest.mark.parametrize(("point", "survive"), KILLS)
def test_whoever_has_the_store_open_goes_on_and_finishes_the_removal(
    store: MessageStore, root: Path, nursery: Nursery, point: CrashPoint, survive: int
) -> None:
    # Given a consumer that is behind, and a process that is killed while it removes files
    behind = grant_of(store)
    assert [message.body for message in behind.take(1, SPAN)] == [b"first"]
    nursery.kill_at_its_point(order_of(root, point, survive))
    high = store.topics.max_offset(QUEUE)
    assert store.state.min_offset > 0

    # Then whatever is published at or above the minimum is there, for readers and for the consumer
    low = store.messages.oldest(QUEUE)
    assert verify(root) == []
    taken = behind.take(SPAN, SPAN)
    assert [message.queue_offset for message in taken] == list(range(low, high))
    assert [number_of(message.body) for message in taken] == list(range(low - 1, high - 1))
    assert behind.damaged == []
    assert store.messages.by_key(TOPIC, "no such key") == []

    # And the next housekeeper finishes what the killed one began
    began = store.state.min_offset
    store.disk.usage = lambda: Usage(10.0, 1 << 30)  # type: ignore[method-assign]
    assert store.retention.clean() == []
    assert store.log_files.bases()[0] == store.state.min_offset == began
    assert store.topics.min_offset(QUEUE) == low
    entries = store.consume_queues[QUEUE].files
    assert entries.bases()[0] <= low * 20
    assert entries.bases()[0] + entries.file_bytes > low * 20
    assert all(store.index_files.open(path).header.end_offset >= began for path in store.index_files.paths()[:-1])
    appender_of(store).append(Message(TOPIC, b"after"))
    assert verify(root) == []
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G12")
@pytest.mark.parametrize(("point", "survive"), KILLS)
def test_when_all_are_killed_the_next_opening_finds_a_right_store(
    store: MessageStore, root: Path, nursery: Nursery, point: CrashPoint, survive: int
) -> None:
    nursery.kill_at_its_point(order_of(root, point, survive))
    low, high = store.messages.oldest(QUEUE), store.topics.max_offset(QUEUE)
    abandon(store)
    with open_store(root, replace(SMALL), housekeeping=False) as again:
        # A file below the raised minimum that was not removed yet is back: nothing was lost by that
        assert again.topics.min_offset(QUEUE) <= low
        assert again.topics.max_offset(QUEUE) == high
        taken = grant_of(again).take(SPAN, SPAN)
        assert [message.queue_offset for message in taken] == list(range(again.topics.min_offset(QUEUE), high))
        assert [message.body for message in taken[-3:]] == [
            body_of(number, 1_500) for number in range(high - 4, high - 1)
        ]
        assert verify(root) == []
    assert reference.check_store(root) == []
