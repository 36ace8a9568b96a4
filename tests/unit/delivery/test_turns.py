"""Turns: queues are looked at in rotation, a thread with nothing to do sleeps, and every change wakes it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rmqclient.delivery.turns import Turns
from rmqclient.store import LONGEST_SLEEP_S, MessageQueue


class FakeBell:
    """A bell that counts its rings; instead of a sleep it does what the test has planned."""

    lane = 7

    def __init__(self) -> None:
        self.rings = 0
        self.sleeps: list[float] = []
        self.instead: list[Callable[[], object]] = []

    def heard(self) -> int:
        return self.rings

    def wait(self, heard: int, timeout_s: float) -> None:
        assert heard == self.rings, "a ring ends the wait at once"
        self.sleeps.append(timeout_s)
        self.instead.pop(0)()

    def ring(self) -> None:
        self.rings += 1

    def arm(self, *queues: MessageQueue) -> int:
        raise AssertionError(f"their grants arm the bell: {queues}")


class FakeQueue:
    """A process queue with these batches."""

    def __init__(self, name: str, *batches: list[Any]) -> None:
        self.queue = MessageQueue(name, 0)
        self.batches = list(batches)
        self.due: float | None = None
        self.revoked = self.is_blocked = False
        self.armed: list[int] = []
        self.grant = SimpleNamespace(damaged=[], arm=self.arm)

    def take(self) -> list[Any]:
        return self.batches.pop(0) if self.batches else []

    def next_due(self) -> float | None:
        return self.due

    def arm(self, lane: int) -> bool:
        self.armed.append(lane)
        return bool(self.batches)


def turns_over(*queues: FakeQueue, relief: Any = None) -> tuple[Any, FakeBell]:
    bell = FakeBell()
    turns: Any = Turns(bell, relief)
    turns.look_at(queues)
    return turns, bell


def test_queues_are_looked_at_in_rotation() -> None:
    first, second = FakeQueue("a", [1], [2], [3]), FakeQueue("b", [4], [5])
    turns, _ = turns_over(first, second)
    assert [turns.take() for _ in range(5)] == [(first, [1]), (second, [4]), (first, [2]), (second, [5]), (first, [3])]


def test_a_message_that_was_handed_over_comes_first_and_alone() -> None:
    queue, retries = FakeQueue("a", [1]), FakeQueue("%RETRY%g")
    turns, bell = turns_over(queue)
    rings = bell.rings
    turns.hand(retries, "handed")
    assert bell.rings == rings + 1
    assert [turns.take(), turns.take()] == [(retries, ["handed"]), (queue, [1])]


def test_a_thread_with_nothing_to_do_arms_every_queue_and_sleeps() -> None:
    first, second = FakeQueue("a"), FakeQueue("b")
    turns, bell = turns_over(first, second)
    bell.instead = [lambda: second.batches.append([1])]
    assert turns.take() == (second, [1])
    assert (first.armed, second.armed, bell.sleeps) == ([7], [7], [LONGEST_SLEEP_S])


def test_a_message_that_comes_while_the_bell_is_armed_is_taken_without_a_sleep() -> None:
    queue = FakeQueue("a")
    turns, bell = turns_over(queue)

    def late(lane: int) -> bool:
        queue.batches.append([1])
        return True

    queue.grant.arm = late
    assert turns.take() == (queue, [1])
    assert bell.sleeps == []


@pytest.mark.parametrize("state", ["revoked", "is_blocked"])
def test_a_queue_that_gives_nothing_is_not_armed(state: str) -> None:
    queue = FakeQueue("a")
    setattr(queue, state, True)
    turns, bell = turns_over(queue)
    bell.instead = [turns.stop]
    assert turns.take() is None
    assert queue.armed == []


def test_a_sleep_ends_when_a_queue_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqclient.delivery.turns.LONGEST_SLEEP_S", 600.0)
    queue = FakeQueue("a")
    queue.due = time.monotonic() + 60
    turns, bell = turns_over(queue)
    bell.instead = [turns.stop]
    assert turns.take() is None
    assert 0 < bell.sleeps[0] <= 60


def test_other_queues_a_handed_message_and_the_stop_are_seen_before_a_sleep() -> None:
    # Each comes after the look and before the sleep, where its ring is heard already
    queue, other = FakeQueue("a"), FakeQueue("b", [1])
    turns, bell = turns_over(queue)
    turns.look_at((other,))
    turns.sleep((queue,))
    turns.hand(other, 2)
    turns.sleep(turns.queues)
    assert turns.take() == (other, [2])
    turns.stop()
    turns.sleep(turns.queues)
    assert bell.sleeps == []
    assert turns.take() is None


def test_relief_is_asked_for_when_there_is_nothing_to_take_and_shortens_the_sleep() -> None:
    queue = FakeQueue("a", [1])
    found: list[Any] = [None, (queue, [2])]
    relief = SimpleNamespace(look_every_s=0.005, is_possible=True, take=lambda: found.pop(0))
    turns, bell = turns_over(queue, relief=relief)
    bell.instead = [lambda: None]
    assert [turns.take(), turns.take()] == [(queue, [1]), (queue, [2])]
    assert bell.sleeps == [0.005]


def test_damaged_records_that_were_stepped_over_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    queue = FakeQueue("a", [1], [2])
    queue.grant.damaged.append((3, 4096, -1))
    turns, _ = turns_over(queue)
    with caplog.at_level(logging.ERROR):
        turns.take()
        turns.take()
    assert [record.message.split(" (")[0] for record in caplog.records] == [
        "a, queue 0, offset 3: the record at 4096 of the commit log is damaged"
    ]
