"""Bells: a ring wakes all sleepers, a ring between look and sleep is not missed, and senders ring armed lanes.

A thread whose waits are short looks for a ring before it sleeps; the processor time of a wait tells.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import Message, Producer
from rmqclient.store import MessageQueue, MessageStore, layout, open_store
from rmqclient.store.errors import StoreClosed, UnknownTopic
from rmqclient.store.runtime.arrivals import Bell
from rmqclient.store.runtime.shared_state import queue_slot_at

QUEUE = MessageQueue("t", 0)
OTHER = MessageQueue("other", 0)
LONG_S = 30.0
"""A sleep of this length was ended by nobody."""
LOOK_NS = 40_000
"""Somewhat less than a look takes; a sleep takes less than that of the processor."""
SHORT_WAITS = 9
"""So many short waits in a row let a thread look before it sleeps, whatever was before."""
NEEDS_TWO_PROCESSORS = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="a thread with one processor sleeps at once"
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", housekeeping=False) as opened:
        opened.topics.create("t", 1)
        opened.topics.create("other", 1)
        yield opened


@pytest.fixture
def producer(store: MessageStore) -> Iterator[Producer]:
    with Producer(store) as opened:
        yield opened


def waiting_lanes(store: MessageStore, queue: MessageQueue) -> int:
    at = queue_slot_at(store.topics.slot(queue)) + layout.QUEUE_SLOT.at["waiting_lanes"]
    return store.state.words.load(at)


def test_a_ring_between_the_look_and_the_sleep_is_not_missed(store: MessageStore) -> None:
    bell = store.arrival_bell()
    heard = bell.heard()
    bell.ring()
    began = time.monotonic()
    bell.wait(heard, LONG_S)
    assert time.monotonic() - began < LONG_S


def test_a_ring_wakes_every_thread_that_sleeps(store: MessageStore) -> None:
    bell = store.arrival_bell()
    heard, began = bell.heard(), time.monotonic()
    sleepers = [threading.Thread(target=bell.wait, args=(heard, LONG_S)) for _ in range(3)]
    for sleeper in sleepers:
        sleeper.start()
    bell.ring()
    for sleeper in sleepers:
        sleeper.join()
    assert time.monotonic() - began < LONG_S


def test_a_sleep_ends_by_itself(store: MessageStore) -> None:
    bell = store.arrival_bell()
    began = time.monotonic()
    bell.wait(bell.heard(), 0.02)
    assert time.monotonic() - began >= 0.02


def wait_shortly(bell: Bell) -> None:
    heard = bell.heard()
    bell.ring()
    bell.wait(heard, LONG_S)


def wait_in_vain(bell: Bell) -> int:
    """Return how many ns of the processor a wait took that ended by itself."""
    heard, before_ns = bell.heard(), time.thread_time_ns()
    bell.wait(heard, 0.002)
    return time.thread_time_ns() - before_ns


@NEEDS_TWO_PROCESSORS
def test_a_thread_whose_last_wait_was_short_looks_before_it_sleeps(store: MessageStore) -> None:
    bell, took_ns = store.arrival_bell(), []
    for _ in range(20):
        for _ in range(SHORT_WAITS):
            wait_shortly(bell)
        took_ns.append(wait_in_vain(bell))
    assert max(took_ns) > LOOK_NS


def test_a_thread_that_has_looked_in_vain_sleeps_at_once(store: MessageStore) -> None:
    bell, took_ns = store.arrival_bell(), []
    for _ in range(20):
        for _ in range(SHORT_WAITS):
            wait_shortly(bell)
        wait_in_vain(bell)
        wait_shortly(bell)
        took_ns.append(wait_in_vain(bell))
    assert min(took_ns) < LOOK_NS


def test_no_ring_is_missed_when_two_threads_wake_each_other_at_full_speed(store: MessageStore) -> None:
    here, there = store.arrival_bell(0), store.arrival_bell(1)
    rounds, longest_s = 5_000, 0.0
    ready = threading.Event()

    def answer() -> None:
        heard = there.heard()
        ready.set()
        for number in range(rounds):
            there.wait(heard + number, LONG_S)
            here.ring()

    answering = threading.Thread(target=answer)
    answering.start()
    ready.wait()
    heard = here.heard()
    for number in range(rounds):
        began = time.monotonic()
        there.ring()
        here.wait(heard + number, LONG_S)
        longest_s = max(longest_s, time.monotonic() - began)
    answering.join()
    assert longest_s < LONG_S


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
def test_no_time_is_no_sleep(store: MessageStore, timeout_s: float) -> None:
    bell = store.arrival_bell()
    began = time.monotonic()
    bell.wait(bell.heard(), timeout_s)
    assert time.monotonic() - began < LONG_S


def test_a_sender_rings_the_lanes_that_are_armed_for_its_queue_once(store: MessageStore, producer: Producer) -> None:
    ours, others = store.arrival_bell(3), store.arrival_bell(5)
    heard = ours.arm(QUEUE), others.arm(OTHER)
    assert waiting_lanes(store, QUEUE) == 1 << 3
    producer.send(Message("t", b""))
    producer.send(Message("t", b""))
    assert (ours.heard(), others.heard()) == (heard[0] + 1, heard[1])
    assert (waiting_lanes(store, QUEUE), waiting_lanes(store, OTHER)) == (0, 1 << 5)


def test_one_bell_is_armed_for_many_queues(store: MessageStore, producer: Producer) -> None:
    bell = store.arrival_bell()
    heard = bell.arm(QUEUE, OTHER)
    producer.send(Message("other", b""))
    assert bell.heard() != heard


def test_a_bell_cannot_be_armed_for_a_queue_that_is_not_there(store: MessageStore) -> None:
    with pytest.raises(UnknownTopic):
        store.arrival_bell().arm(MessageQueue("missing", 0))


def test_a_new_topic_rings_the_bell_of_members(store: MessageStore) -> None:
    bell = store.membership_bell()
    heard = bell.heard()
    store.topics.create("new", 1)
    assert bell.heard() != heard


def test_a_member_rings_the_bells_of_the_members_that_it_tells(store: MessageStore) -> None:
    first, second = store.members(), store.members()
    first.join("g", "t", "a", "*")
    other = second.join("g", "t", "b", "*")
    bells = [table.bell for table in (first, second)]
    heard = [bell.heard() for bell in bells]
    first.wake([seat for seat in first.roll.counted("g", "t", 10_000) if seat.client_id == other.client_id])
    assert [bell.heard() for bell in bells] == [heard[0], heard[1] + 1]


def test_a_closed_store_gives_no_bells(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", housekeeping=False)
    store.close()
    for make in (store.arrival_bell, store.membership_bell, store.removal_bell):
        with pytest.raises(StoreClosed):
            make()
