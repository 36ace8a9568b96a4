"""Gathering: a batch is full, or due, or as large as the limits allow; one that cannot be opened comes alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rmqclient.delivery.modes.gathering import Gathering
from rmqclient.delivery.process_queue import FlowControl

LINGER_S = 0.2


class FakeQueue:
    """A process queue with these batches of new messages."""

    def __init__(self, *batches: list[Any]) -> None:
        self.batches = list(batches)
        self.max_messages = 1_000
        self.flow_control = FlowControl.NONE
        self.grant = SimpleNamespace(has_unopened=False)

    def take_new(self) -> list[Any]:
        return self.batches.pop(0) if self.batches else []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr("rmqclient.store.clock.elapsed", lambda: clock.now)
    return clock


def gathering(queue: FakeQueue, linger_s: float = LINGER_S) -> Any:
    stand_in: Any = queue
    return Gathering(stand_in, linger_s)


def test_a_full_batch_comes_at_once_and_the_rest_waits(clock: SimpleNamespace) -> None:
    queue = FakeQueue(["a", "b"], ["c"])
    gathered = gathering(queue)
    assert gathered.take(2) == ["a", "b"]
    assert gathered.take(2) == []
    assert gathered.due == clock.now + LINGER_S


def test_a_batch_that_is_not_full_waits_from_its_first_message_on(clock: SimpleNamespace) -> None:
    queue = FakeQueue(["a"])
    gathered = gathering(queue)
    assert gathered.take(3) == []
    clock.now += LINGER_S / 2
    queue.batches.append(["b"])
    assert gathered.take(3) == []
    clock.now += LINGER_S / 2
    assert gathered.take(3) == ["a", "b"]
    assert gathered.due is None


def test_a_queue_at_a_limit_gives_what_it_has(clock: SimpleNamespace) -> None:
    queue = FakeQueue(["a"])
    gathered = gathering(queue)
    assert gathered.take(3) == []
    queue.flow_control = FlowControl.BYTES
    assert gathered.take(3) == ["a"]


def test_a_batch_is_not_larger_than_the_messages_that_may_be_in_flight(clock: SimpleNamespace) -> None:
    queue = FakeQueue(["a", "b", "c"])
    queue.max_messages = 2
    assert gathering(queue).take(10) == ["a", "b"]


def test_a_compressed_batch_that_cannot_be_opened_comes_alone() -> None:
    good, bad = SimpleNamespace(unopened=None), SimpleNamespace(unopened=ValueError("damaged"))
    queue = FakeQueue([good, bad, good])
    queue.grant.has_unopened = True
    gathered = gathering(queue, linger_s=0.0)
    assert [gathered.take(3) for _ in range(3)] == [[good], [bad], [good]]
