"""When the tasks of the housekeeper run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rmqclient.store.errors import StoreBusy, StoreFull, StorePoisoned, StoreReplaced
from rmqclient.store.upkeep import timetable
from rmqclient.store.upkeep.timetable import Every, Timetable
from tests.client.conftest import wait_for

NEVER = 3_600_000


def nothing() -> None:
    """Stands for a look that finds the store in its place."""


@contextmanager
def running(
    tasks: dict[Callable[[], None], int | Every], check_in_place: Callable[[], None] = nothing
) -> Iterator[Timetable]:
    ended, table = threading.Event(), Timetable(tasks, check_in_place)
    thread = threading.Thread(target=table.run, args=(ended,))
    thread.start()
    try:
        yield table
    finally:
        ended.set()
        thread.join()


class Task:
    """Notes when it ran; what it does is up to the test."""

    __name__ = "task"

    def __init__(self, do: Callable[[], object] = lambda: None) -> None:
        self.at: list[float] = []
        self._do = do

    def __call__(self) -> None:
        self.at.append(time.monotonic())
        self._do()


def test_a_task_first_runs_after_its_interval_and_then_again_and_again() -> None:
    task, began = Task(), time.monotonic()
    with running({task: 30}):
        wait_for(lambda: len(task.at) >= 3, "three runs")
    # Two notes may be closer to each other than two turns: the thread that makes the first one may be late
    assert all(at - began >= 0.03 * turn for turn, at in enumerate(task.at, start=1))


def test_a_first_run_may_come_sooner_than_the_interval() -> None:
    task = Task()
    with running({task: Every(NEVER, first_after_ms=0)}):
        wait_for(lambda: task.at, "the first run")
    assert len(task.at) == 1


def test_turns_that_were_missed_are_not_made_up_for() -> None:
    # Given a clock that nothing moves but the test
    now = [0]
    task = Task()
    with running({task: Every(1_000, first_after_ms=0, now_ns=lambda: now[0])}):
        wait_for(lambda: len(task.at) == 1, "the first run")
        # When the machine was suspended for a day
        now[0] += 86_400 * 1_000_000_000
        wait_for(lambda: len(task.at) == 2, "one run afterwards")
    assert len(task.at) == 2


def test_a_task_that_runs_long_is_not_run_twice_at_once_and_does_not_hold_up_the_others() -> None:
    may_end = threading.Event()
    slow, quick = Task(lambda: may_end.wait(60)), Task()
    with running({slow: Every(1, 0), quick: 1}):
        wait_for(lambda: len(quick.at) >= 20, "twenty runs of the other")
        assert len(slow.at) == 1
        may_end.set()
        wait_for(lambda: len(slow.at) >= 3, "further runs")


def test_it_returns_when_no_task_runs_any_more() -> None:
    done = []

    def work() -> None:
        time.sleep(0.1)
        done.append(True)

    task = Task(work)
    with running({task: Every(NEVER, 0)}):
        wait_for(lambda: task.at, "it runs")
    assert done


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (StorePoisoned("told already"), None),
        (StoreBusy("later"), logging.INFO),
        (StoreFull("no room"), logging.ERROR),
        (OSError("refused"), logging.ERROR),
        (KeyError("a mistake"), logging.ERROR),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_failure_is_reported_and_the_next_turn_still_comes(
    error: Exception, level: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    task = Task(fail)
    caplog.set_level(logging.INFO)
    with running({task: 1}):
        wait_for(lambda: len(task.at) >= 2, "another run after the failure")
    levels = {record.levelno for record in caplog.records if record.name == timetable.__name__}
    assert levels == ({level} if level else set())


def test_a_failure_that_lasts_is_told_once_a_minute_and_another_one_at_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a task that fails at each of its turns
    now = [0]
    monkeypatch.setattr(timetable, "boottime", lambda: now[0])
    failing: list[Exception] = [StoreFull("no room")]

    def fail() -> None:
        raise failing[0]

    def lines() -> int:
        return sum(record.name == timetable.__name__ for record in caplog.records)

    def run_again() -> None:
        ran = len(task.at)
        wait_for(lambda: len(task.at) >= ran + 3, "further runs")

    task = Task(fail)
    with running({task: Every(1, 0, time.monotonic_ns)}):
        run_again()
        assert lines() == 1
        # When it fails otherwise, or a minute has passed, Then it is told again
        failing[0] = OSError("refused")
        run_again()
        assert lines() == 2
        now[0] += 60 * 10**9
        run_again()
        assert lines() == 3


@pytest.mark.parametrize("error", [FileNotFoundError("commitlog"), StoreFull("no room")])
def test_a_failure_in_a_store_that_was_removed_is_not_reported_in_words_of_its_own(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    def check_in_place() -> None:
        raise StoreReplaced("removed")

    task = Task(fail)
    with running({task: 1}, check_in_place):
        wait_for(lambda: len(task.at) >= 2, "another run after the failure")
    assert not [record for record in caplog.records if record.name == timetable.__name__]
