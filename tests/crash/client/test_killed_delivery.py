"""What becomes of delayed messages when whoever delivers them is killed, at every place of that: one copy each."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.settings import config_file
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.support.oracle import reference
from tests.support.oracle.views import bodies, power_cut_image, queued_records
from tests.support.stores import SMALL, TOPIC, abandon, after_every_delay, appender_of, body_of, waiting

MESSAGES = 30
LEVELS = (1, 7, 18)
LARGE = 1_500
POINTS = [
    *(point for point in CrashPoint if point <= CrashPoint.PROGRESS_ADVANCED),
    CrashPoint.FILE_ALLOCATED,
]


def go_on(store: MessageStore) -> MessageStore:
    """The survivor uses the handle that it had before the death."""
    return store


def reopen(store: MessageStore) -> MessageStore:
    """Everybody else dies, too; the next one builds the runtime file anew, and has only the old one to go by."""
    abandon(store)
    return open_store(store.root, housekeeping=False)


@pytest.fixture
def delayed(store: MessageStore) -> list[list[bytes]]:
    """Send delayed messages of three levels; return the bodies of each level in order."""
    appender = appender_of(store)
    for number in range(MESSAGES):
        appender.append(Message(TOPIC, body_of(number, LARGE)), delay_level=LEVELS[number % 3])
    return [[body_of(number, LARGE) for number in range(first, MESSAGES, 3)] for first in range(3)]


@pytest.mark.crash
@pytest.mark.guarantee("G19")
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name.lower())
@pytest.mark.parametrize("survive", [0, 7])
@pytest.mark.parametrize("repaired", [go_on, reopen])
def test_a_killed_delivery_leaves_one_copy_of_each_message(
    store: MessageStore,
    root: Path,
    nursery: Nursery,
    delayed: list[list[bytes]],
    point: CrashPoint,
    survive: int,
    repaired: Callable[[MessageStore], MessageStore],
) -> None:
    # Given that whoever delivers is killed in the middle of it
    passes = 0 if point in (CrashPoint.BLANK_WRITTEN, CrashPoint.FILE_ALLOCATED) else survive
    notes = str(root.with_name("notes"))
    order = Order(scenario="deliver", root=str(root), notes=notes, point=point.name, survive=passes)
    assert nursery.kill_at_its_point(order) == []

    # When another one goes on
    survivor = repaired(store)
    deliver_all(survivor)

    # Then each message is there once, those of a level in order
    found = bodies(queued_records(survivor))[1:]
    assert len(found) == MESSAGES
    assert [[body for body in found if body in level] for level in delayed] == delayed
    survivor.close()
    assert reference.check_store(root) == []
    assert config_file.read_delay_offsets(root) == dict.fromkeys(LEVELS, MESSAGES // 3)


@pytest.mark.crash
@pytest.mark.guarantee("G19")
@pytest.mark.parametrize("turn", range(6))
def test_killed_at_any_line_of_python_delivery_leaves_one_copy_of_each_message(
    store: MessageStore, root: Path, nursery: Nursery, delayed: list[list[bytes]], turn: int
) -> None:
    # Given one process after the other that delivers and is killed at some line, early or late
    seed = random.randrange(1 << 32)
    print(f"seed {seed}, turn {turn}")
    chosen = random.Random(seed)
    for number in range(5):
        notes = str(root.with_name(f"notes {number}"))
        order = Order(scenario="deliver", root=str(root), notes=notes, kill_at_line=chosen.randrange(1, 280))
        assert nursery.run(order) in (-signal.SIGKILL, 0)

    # Then each message is there once, those of a level in order
    survivor = reopen(store) if turn % 2 else store
    deliver_all(survivor)
    found = bodies(queued_records(survivor))[1:]
    assert len(found) == MESSAGES
    assert [[body for body in found if body in level] for level in delayed] == delayed
    survivor.close()
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G19")
@pytest.mark.parametrize("persisted", [0, 11])
def test_a_power_cut_brings_no_message_that_was_delivered_again(
    store: MessageStore, root: Path, persisted: int
) -> None:
    # Given deliveries of which the file on disk tells some or none, two of them with the same body
    appender = appender_of(store)
    sent = [*map(body_of, range(persisted)), b"the same", b"the same", *map(body_of, range(persisted, MESSAGES))]
    for body in sent[:persisted]:
        appender.append(Message(TOPIC, body), delay_level=1)
    deliver_when_due(store)
    store.schedule.persist()
    for body in sent[persisted:]:
        appender.append(Message(TOPIC, body), delay_level=1)
    persisted_to = store.state.published_to
    deliver_when_due(store)
    records = [record for _, record in reference.read_commit_log(root) if record.commit_log_offset >= persisted_to]
    assert len(records) == len(sent) - persisted
    for record in [*records[::3], records[-1]]:
        # When the power is cut behind any of them, and everything is delivered
        end = record.commit_log_offset + record.size
        image = power_cut_image(root, root.with_name("image"), end, SMALL.commit_log_file_bytes)
        with open_store(image, housekeeping=False) as again:
            deliver_all(again)
            found = bodies(queued_records(again))[1:]
        # Then each message is there once
        assert found == sent
        assert reference.check_store(image) == []
        shutil.rmtree(image)
    abandon(store)


def deliver_when_due(store: MessageStore) -> None:
    """Look until nothing waits in the first level any more, by the real clock."""
    deadline = time.monotonic() + 30
    while any(waiting(store).values()):
        assert time.monotonic() < deadline
        time.sleep(store.schedule.look() / 1000)


def deliver_all(store: MessageStore) -> None:
    """Look until nothing waits any more, as if the longest delay were over."""
    store.schedule.now_ms = after_every_delay
    while any(waiting(store).values()):
        store.schedule.look()
