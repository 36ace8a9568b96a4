"""Sends by key: of any number of senders one stores its message, whoever is killed where."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient import Message, Producer, SendResult
from rmqclient.store import MessageStore, open_store
from rmqclient.store.crash_points import CrashPoint
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.support.oracle import reference
from tests.support.oracle.views import bodies, power_cut_image, queued_records
from tests.support.stores import SMALL, TOPIC, abandon, body_of

KEYS = 60
SIZE = 1_500
"""Large, so that the log and the index roll to their next files on the way."""

APPEND = [point for point in CrashPoint if point < CrashPoint.PROGRESS_ADVANCED]
INDEX = [CrashPoint.INDEX_SLOT_WRITTEN, CrashPoint.INDEX_FILE_FULL, CrashPoint.INDEX_WRITTEN]
STORED = range(CrashPoint.RECORDS_ANNOUNCED, CrashPoint.APPEND_FINISHED + 1)
"""From here on a message is there although its sender did not live to hear of it."""


def killed_at(root: Path, nursery: Nursery, point: CrashPoint, survive: int = 0, life: int = 0) -> list[int]:
    """Kill a sender at a point; return the numbers of the messages that it has sent, or found."""
    notes = str(root.with_name(f"notes {life}"))
    order = Order(
        scenario="send_once",
        root=str(root),
        notes=notes,
        rounds=KEYS,
        body_bytes=SIZE,
        point=point.name,
        survive=survive,
    )
    return [int(line.split()[0]) for line in nursery.kill_at_its_point(order)]


def send_all(store: MessageStore) -> list[SendResult]:
    with Producer(store) as producer:
        return [producer.send_once(Message(TOPIC, body_of(number, SIZE)), f"key-{number}") for number in range(KEYS)]


def stored(store: MessageStore) -> list[bytes]:
    """Return what was sent, but for the first message, which is no test's."""
    return bodies(queued_records(store))[1:]


EACH_ONCE = [body_of(number, SIZE) for number in range(KEYS)]


@pytest.mark.crash
@pytest.mark.guarantee("G43")
@pytest.mark.parametrize("point", [*APPEND, CrashPoint.ONCE_NOT_FOUND, *INDEX], ids=str)
@pytest.mark.parametrize("survive", [0, 1])
def test_a_killed_sender_leaves_each_key_sent_once(
    store: MessageStore, root: Path, nursery: Nursery, point: CrashPoint, survive: int
) -> None:
    # Given a sender that is killed at some point of its way
    sent = killed_at(root, nursery, point, survive)
    # When another one sends the same
    results = send_all(store)
    # Then each message is there once, in order, and what was sent, the last message included if it was, is found
    assert stored(store) == EACH_ONCE
    last = [len(sent)] if point in STORED else []
    found = [number for number, result in enumerate(results) if result.is_duplicate]
    assert found == [*sent, *last]
    places = [record.commit_log_offset for record in queued_records(store)[1:]]
    assert [result.commit_log_offset for result in results] == places
    store.close()
    assert reference.check_store(root) == []


@pytest.mark.crash
@pytest.mark.guarantee("G43")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (CrashPoint.RECORDS_COPIED, CrashPoint.REPAIR_STARTED),
        (CrashPoint.RECORDS_COPIED, CrashPoint.REPAIR_ZEROED),
        (CrashPoint.RECORDS_ANNOUNCED, CrashPoint.REPAIR_STARTED),
        (CrashPoint.RECORDS_ANNOUNCED, CrashPoint.REPAIR_ENTRY_WRITTEN),
        (CrashPoint.RECORDS_PUBLISHED, CrashPoint.REPAIR_ENTRY_WRITTEN),
    ],
    ids=str,
)
def test_so_does_one_that_is_killed_while_it_settles_what_the_one_before_has_left(
    store: MessageStore, root: Path, nursery: Nursery, first: CrashPoint, second: CrashPoint
) -> None:
    killed_at(root, nursery, first, survive=3)
    assert killed_at(root, nursery, second, life=1) == []
    send_all(store)
    assert stored(store) == EACH_ONCE


@pytest.mark.crash
@pytest.mark.guarantee("G43")
@pytest.mark.parametrize("point", [CrashPoint.RECORDS_COPIED, CrashPoint.RECORDS_ANNOUNCED, CrashPoint.INDEX_WRITTEN])
def test_what_was_sent_is_found_after_everybody_was_killed(
    store: MessageStore, root: Path, nursery: Nursery, point: CrashPoint
) -> None:
    killed_at(root, nursery, point, survive=5)
    abandon(store)
    with open_store(root, SMALL, housekeeping=False) as again:
        send_all(again)
        assert stored(again) == EACH_ONCE


@pytest.mark.crash
@pytest.mark.guarantee("G43")
@pytest.mark.parametrize("lost", [1, 4, KEYS])
def test_what_a_power_cut_takes_is_sent_again_and_nothing_else(store: MessageStore, root: Path, lost: int) -> None:
    # Given a store that was indexed, and a power cut that takes the last messages and leaves their index entries
    sent = send_all(store)
    store.index.catch_up()
    abandon(store)
    cut = power_cut_image(
        root, root.with_name("cut"), sent[-lost].commit_log_offset, store.config.commit_log_file_bytes
    )
    # When the same is sent again
    with open_store(cut, SMALL, housekeeping=False) as again:
        results = send_all(again)
        # Then each message is there once
        assert stored(again) == EACH_ONCE
    assert [result.is_duplicate for result in results] == [True] * (KEYS - lost) + [False] * lost
