"""A process killed at every step of a pass: the old compacted file or the new one is there, and no value is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient import PullConsumer, PullStatus
from rmqclient.store import MessageStore, open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.inspect.verify import verify
from rmqclient.store.settings.disk import Usage
from rmqclient.store.upkeep import retention
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.crash.processes.scenarios.upkeep import COMPACT_QUEUE, PRICES, price_of
from tests.support.oracle import reference
from tests.support.stores import SMALL, abandon

STEPS = [point for point in CrashPoint if point.name.startswith("COMPACT")]

KILLS = [
    pytest.param(point, survive, id=f"{point.name.lower()}-{survive}")
    for point in STEPS
    for survive in ((0, 1) if point.name.startswith("COMPACTION_") else (0,))
]


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PAUSE_S", 0)


def order_of(root: Path, point: CrashPoint, survive: int) -> Order:
    return Order(
        scenario="compact", root=str(root), notes=str(root.with_name("notes")), point=point.name, survive=survive
    )


def values(store: MessageStore) -> dict[str, bytes]:
    """Read the compact topic from its oldest message on."""
    consumer = PullConsumer(store, group="readers")
    found: dict[str, bytes] = {}
    offset = consumer.min_offset(COMPACT_QUEUE)
    while (result := consumer.pull(COMPACT_QUEUE, offset)).status is not PullStatus.NO_NEW_MESSAGE:
        found |= {message.keys[0]: message.body[:1] for message in result.messages}
        offset = result.next_offset
    return {key: value for key, value in found.items() if value}


def expected(end: int) -> dict[str, bytes]:
    """Return what a dictionary says after so many updates."""
    updates = [*range(3 * PRICES), *range(3 * PRICES + 1)]
    found = {f"key-{number % PRICES}": price_of(number) for number in updates[:end]}
    if end > len(updates):
        del found["key-1"]
    return found


def clean(store: MessageStore) -> None:
    """Compact, and remove all files but the newest."""
    store.flusher.flush_thorough()
    store.disk.usage = lambda: Usage(86.0, 1 << 30)  # type: ignore[method-assign]
    while store.retention.clean():
        pass


@pytest.mark.crash
@pytest.mark.guarantee("G41")
@pytest.mark.parametrize(("point", "survive"), KILLS)
def test_whoever_has_the_store_open_reads_every_value_and_compacts_on(
    store: MessageStore, root: Path, nursery: Nursery, point: CrashPoint, survive: int
) -> None:
    nursery.kill_at_its_point(order_of(root, point, survive))
    store.topics.create(COMPACT_QUEUE.topic, 1, "compact")
    wanted = expected(store.topics.max_offset(COMPACT_QUEUE))
    assert values(store) == wanted
    assert verify(root) == []

    clean(store)
    assert values(store) == wanted
    assert store.topics.max_offset(COMPACT_QUEUE) == 0 or store.compaction.log_low(COMPACT_QUEUE) > 0
    assert not list(root.rglob("*.tmp"))
    assert verify(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G41")
@pytest.mark.parametrize(("point", "survive"), KILLS)
def test_when_all_are_killed_the_next_opening_reads_every_value(
    store: MessageStore, root: Path, nursery: Nursery, point: CrashPoint, survive: int
) -> None:
    nursery.kill_at_its_point(order_of(root, point, survive))
    abandon(store)
    (root / "shared").unlink()
    with open_store(root, SMALL, housekeeping=False) as again:
        assert again.topics.is_compact(COMPACT_QUEUE.topic)
        wanted = expected(again.topics.max_offset(COMPACT_QUEUE))
        assert values(again) == wanted
        clean(again)
        assert values(again) == wanted
        assert verify(root) == []
    assert reference.check_store(root) == []
