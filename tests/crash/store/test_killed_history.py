"""A process killed while it writes the history: the next one goes on, and counts each message once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqclient.store import MessageStore, open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.history.figures import figures_of, points_of
from rmqclient.store.history.recorder import Recorder
from rmqclient.store.history.rings import SPANS_MS, HistoryFile, Row, sum_of
from rmqclient.store.marks import marks_of
from tests.crash.processes.nursery import Nursery, notes_of
from tests.crash.processes.order import Order
from tests.crash.processes.scenarios.upkeep import HISTORY_BEGINS_MS
from tests.support.stores import GROUP, QUEUE, SMALL, abandon, grant_of

STEPS = [point for point in CrashPoint if point.name.startswith("HISTORY_")]
LONG_AFTER_MS = HISTORY_BEGINS_MS + 86_400_000


def order_of(root: Path, number: int, *, point: str = "", survive: int = 0, line: int = 0, rounds: int = 0) -> Order:
    notes = str(root.with_name(f"notes-{number}"))
    return Order(
        scenario="keep_history", root=str(root), notes=notes, point=point, survive=survive, kill_at_line=line,
        target=number, rounds=rounds,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _history(store: MessageStore) -> None:
    """Begin the history with the group, whose first message is stored and not handled."""
    grant_of(store)
    Recorder(store.root, store.lock, wall_ms=lambda: HISTORY_BEGINS_MS - 1).record()


def finished_by(orders: list[Order]) -> int:
    """Return how many messages children said that they had finished."""
    return sum(int(line) for order in orders for line in notes_of(order))


def history_of(root: Path) -> Row:
    """Return what the group did, in all of the history."""
    (figures,) = figures_of(root, 0, LONG_AFTER_MS)
    assert figures.group == GROUP
    return figures.row


def counted_by(store: MessageStore) -> tuple[int, int]:
    """Return how many messages were stored since the history began, and how many were finished, by the counters."""
    slot = store.groups.find_or_add(GROUP, store.topics.slot(QUEUE), 0)
    return store.topics.max_offset(QUEUE) - 1, slot.load("handled")


def check_sums(root: Path) -> None:
    """Check that each record of a coarser ring says what the finer ones say that it sums up."""
    with HistoryFile(root) as file:
        head = file.head()
        assert head is not None
        for level in range(1, len(SPANS_MS)):
            finer = {each.number: each for each in file.records(head, level - 1)}
            for record in file.records(head, level):
                parts = [finer[number] for number in range(record.first, record.last + 1)]
                counts = [{group: row[:7] for group, row in rows.items()} for rows in (record.rows(), sum_of(parts))]
                assert counts[0] == counts[1]
                assert (record.began_ms, record.ended_ms) == (parts[0].began_ms, parts[-1].ended_ms)


@pytest.mark.crash
@pytest.mark.guarantee("G127")
@pytest.mark.parametrize("survive", [0, 1, 5])
@pytest.mark.parametrize("point", STEPS, ids=lambda point: point.name.lower())
def test_a_kill_in_a_record_counts_nothing_twice_and_forgets_nothing(
    store: MessageStore, root: Path, nursery: Nursery, point: CrashPoint, survive: int
) -> None:
    order = order_of(root, 1, point=point.name, survive=survive)
    nursery.kill_at_its_point(order)

    # A reader sees what the last head counts, before anybody goes on
    counted = sum(figures.row.handled for figures in figures_of(root, 0, LONG_AFTER_MS))
    assert counted <= finished_by([order])

    # The next process goes on where that ended
    Recorder(root, store.lock, wall_ms=lambda: HISTORY_BEGINS_MS + 7_200_000).record()
    stored, handled = counted_by(store)
    assert (history_of(root).published, history_of(root).handled) == (stored, handled)
    assert handled == finished_by([order])
    check_sums(root)


@pytest.mark.crash
@pytest.mark.guarantee("G127")
@pytest.mark.parametrize("kills", [40, pytest.param(1_000, marks=pytest.mark.sweep)])
def test_after_kills_at_any_line_the_history_has_what_was_finished(
    root: Path, store: MessageStore, nursery: Nursery, kills: int
) -> None:
    # Given lives that are killed at a line each, some of them after all others have left the store, too
    chosen, orders = random.Random(35), list[Order]()
    abandon(store)
    for number in range(kills):
        orders.append(order_of(root, number, line=chosen.randrange(1, 900), rounds=4))
        nursery.run(orders[-1])

    # When one more process opens the store, and writes what was left
    with open_store(root, SMALL, housekeeping=False) as again:
        Recorder(root, again.lock, wall_ms=lambda: LONG_AFTER_MS - 1).record()
        stored, handled = counted_by(again)

    # Then everything was counted once. A process can be killed behind an acknowledgement, before it says so
    row, said = history_of(root), finished_by(orders)
    assert (row.published, row.handled) == (stored, handled)
    assert said <= handled <= said + 3 * len(orders)
    assert row.handled == sum(point.rows[GROUP].handled for point in points_of(root, 0, LONG_AFTER_MS) if point.rows)


@pytest.mark.crash
@pytest.mark.guarantee("G128")
@pytest.mark.parametrize("kills", [40, pytest.param(1_000, marks=pytest.mark.sweep)])
def test_after_kills_at_any_line_each_mark_that_was_written_is_there_once_in_its_order(
    root: Path, store: MessageStore, nursery: Nursery, kills: int
) -> None:
    chosen, orders = random.Random(128), list[Order]()
    abandon(store)
    for number in range(kills):
        line = chosen.randrange(1, 60)
        orders.append(
            Order(scenario="write_marks", root=str(root), notes=str(root.with_name(f"notes-{number}")),
                  kill_at_line=line, target=number, rounds=3)
        )  # fmt: skip
        nursery.run(orders[-1])
    told = [mark.subject for mark in marks_of(root, kinds=("pause",))]
    said = [line for order in orders for line in notes_of(order)]
    assert said
    assert [each for each in told if each in set(said)] == said
    assert len(told) == len(set(told)) <= len(said) + len(orders), "killed behind a mark, before it said so"
