"""Calls: how long a handler call runs, and how other threads take over the rest of a batch."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from rmqclient.delivery.calls import Calls


def with_batch(*messages: str, valid: bool = True, lease_is_over: bool = False) -> tuple[Any, list[Any]]:
    calls, batch = Calls(), list[Any](messages)
    queue: Any = SimpleNamespace(grant=SimpleNamespace(valid=valid, lease_is_over=lease_is_over))
    calls.queue, calls.unfinished = queue, iter(batch)
    return calls, batch


def test_messages_that_others_took_over_are_not_accounted_for_by_this_thread() -> None:
    calls, batch = with_batch("a", "b", "c")
    assert next(calls.unfinished) == "a"
    assert calls.relieve() == "b"
    assert list(calls.unfinished) == ["c"]
    assert calls.close_batch(batch) == ["a", "c"]


def test_nothing_is_taken_over_from_a_batch_that_is_closed() -> None:
    calls, batch = with_batch("a", "b")
    assert calls.close_batch(batch) == ["a", "b"]
    assert calls.relieve() is None


@pytest.mark.parametrize("lost", [{"valid": False}, {"lease_is_over": True}])
def test_the_rest_of_a_batch_of_a_lost_queue_is_left_to_the_next_owner(lost: dict[str, bool]) -> None:
    calls, _ = with_batch("a", **lost)
    assert calls.relieve() is None
    assert list(calls.unfinished) == ["a"]


def test_a_call_is_kept_from_the_first_look_that_saw_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    calls = Calls()
    calls.running, calls.begun = 1, 1
    assert calls.kept_s < 0.005
    now += 0.006
    assert calls.kept_s >= 0.005
    calls.begun += 1
    assert calls.kept_s < 0.005, "another call has begun"


def test_a_call_runs_since_it_was_first_seen_running() -> None:
    calls = Calls()
    assert calls.running_since(5) == 0
    calls.running, calls.begun = 1, 1
    assert [calls.running_since(now) for now in (10, 20)] == [10, 10]
    calls.begun += 1
    assert calls.running_since(30) == 30
    calls.running = 0
    assert calls.running_since(40) == 0
