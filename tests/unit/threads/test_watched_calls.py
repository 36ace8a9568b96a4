"""Watched calls: one that hangs does not hold the next, and what a call raises goes to its caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from rmqclient.store.threads.watched_calls import WatchedCalls
from tests.client.conftest import wait_for


@pytest.fixture
def calls() -> Iterator[WatchedCalls]:
    """Calls that hang after a tenth of a second, two at once at most."""
    made = WatchedCalls("call", "rmq-test", patience_s=0.1, most=2)
    yield made
    made.close()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds calls until the test opens it, or ends."""
    made = threading.Event()
    yield made
    made.set()


def test_calls_follow_each_other_on_one_thread(calls: WatchedCalls) -> None:
    seen: list[tuple[int, str]] = []
    for number in range(5):
        calls.run(number, lambda number=number: seen.append((number, threading.current_thread().name)))  # type: ignore[misc]
    assert seen == [(number, "rmq-test") for number in range(5)]
    assert sum(each.name == "rmq-test" for each in threading.enumerate()) == 1


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_what_a_call_raises_goes_to_its_caller(calls: WatchedCalls, kind: type[BaseException]) -> None:
    def fail() -> None:
        raise kind

    with pytest.raises(kind):
        calls.run("a", fail)
    calls.run("b", lambda: None)


def test_the_next_call_runs_beside_one_that_hangs(calls: WatchedCalls, gate: threading.Event) -> None:
    done: list[str] = []
    calls.run("slow", gate.wait)
    assert calls.hang
    calls.run("next", lambda: done.append("next"))
    assert done == ["next"]
    gate.set()
    wait_for(lambda: not calls.hang, "the slow one has ended")


def test_one_that_still_runs_is_not_run_again(calls: WatchedCalls, gate: threading.Event) -> None:
    calls.run("slow", gate.wait)
    calls.run("slow", lambda: pytest.fail("it runs twice at once"))
    gate.set()
    wait_for(lambda: not calls.hang, "the slow one has ended")
    done: list[str] = []
    calls.run("slow", lambda: done.append("again"))
    assert done == ["again"]


def test_with_as_many_hanging_as_may_the_next_waits_for_one_to_end(calls: WatchedCalls, gate: threading.Event) -> None:
    for name in ("a", "b"):
        calls.run(name, gate.wait)
    threading.Timer(0.2, gate.set).start()
    done: list[bool] = []
    calls.run("c", lambda: done.append(gate.is_set()))
    assert done == [True]


def test_the_end_neither_waits_for_ever_nor_begins_anything(calls: WatchedCalls, gate: threading.Event) -> None:
    calls.run("slow", gate.wait)
    calls.close()
    calls.run("late", lambda: pytest.fail("it was begun after the end"))
