"""The clock that tests move, and that every store has one."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from rmqclient.store import Message, clock, open_store
from rmqclient.store.errors import ConfigMismatch, StoreCorrupt
from tests.client.conftest import wait_for
from tests.support.stores import abandon

HOUR_MS = 3_600_000


def ahead_ms() -> float:
    """Return what the clock of this process is ahead of the host's."""
    return clock.wall_ms() - time.time() * 1000


def in_child(do: Callable[[], object]) -> None:
    """Do something in a forked child; fail when it fails."""
    child = os.fork()
    if child == 0:
        try:
            do()
        except BaseException:  # noqa: BLE001 - the child must not return into the runner of the tests
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture
def movable(tmp_path: Path) -> Path:
    """The root of a store that has a clock for tests, and is not made yet."""
    root = tmp_path / "movable"
    root.mkdir()
    clock.make(root)
    return root


def test_a_process_follows_the_clock_of_the_store_that_it_has_open_and_then_the_hosts_again(movable: Path) -> None:
    with open_store(movable):
        began = clock.elapsed()
        clock.advance(timedelta(days=40))
        assert ahead_ms() == pytest.approx(40 * 24 * HOUR_MS, abs=1_000)
        assert clock.elapsed() - began == pytest.approx(40 * 86_400, abs=1)
    assert not clock.is_movable()
    assert ahead_ms() == pytest.approx(0, abs=1_000)


@pytest.mark.guarantee("G62")
def test_moving_the_clock_ends_no_lease(movable: Path) -> None:
    with open_store(movable):
        began = clock.boottime()
        clock.advance(timedelta(days=1))
        assert clock.boottime() - began < 60e9


@pytest.mark.guarantee("G62")
def test_another_process_follows_the_same_clock_and_may_move_it(movable: Path) -> None:
    def move() -> None:
        with open_store(movable):
            assert ahead_ms() == pytest.approx(HOUR_MS, abs=1_000)
            clock.advance(timedelta(hours=1))

    with open_store(movable):
        clock.advance(timedelta(hours=1))
        in_child(move)
        assert ahead_ms() == pytest.approx(2 * HOUR_MS, abs=1_000)


def test_a_message_is_stored_at_the_time_of_the_clock(movable: Path) -> None:
    with open_store(movable) as store:
        clock.advance(timedelta(hours=1))
        queues = store.topics.create("t", 1)
        store.appenders.make(lambda _: queues, lambda _: b"").append(Message("t", b"x"))
        stored = store.messages.at(queues[0], 0)
    assert stored.store_timestamp - time.time() * 1000 == pytest.approx(HOUR_MS, abs=5_000)
    assert stored.born_timestamp == pytest.approx(stored.store_timestamp, abs=5_000)


def test_a_clock_may_run_faster(tmp_path: Path) -> None:
    clock.make(tmp_path, factor=1_000)
    with open_store(tmp_path):
        began = clock.elapsed()
        assert clock.real_s(500.0) == 0.5
        wait_for(lambda: clock.elapsed() - began > 20, "twenty seconds in twenty milliseconds")
        assert ahead_ms() > 19_000


def test_a_sleep_until_a_ms_ends_where_that_ms_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path):
        monkeypatch.setattr(clock, "wall_ns", lambda: 7_300_000)
        assert clock.real_s_to(2) == pytest.approx(0.0017)


def test_a_wait_may_take_a_part_of_a_ms(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        bell = store.membership_bell()
        began = time.perf_counter_ns()
        bell.wait(bell.heard(), 0.0005)
        assert time.perf_counter_ns() - began >= 500_000


def test_who_sleeps_by_the_clock_wakes_when_it_is_moved(movable: Path) -> None:
    with open_store(movable):
        woken = threading.Event()
        before = clock.heard()

        def sleep() -> None:
            clock.wait(before, 60)
            woken.set()

        sleeper = threading.Thread(target=sleep)
        sleeper.start()
        clock.advance(timedelta(seconds=1))
        assert woken.wait(10)
        sleeper.join()


def test_who_sleeps_on_a_bell_of_the_store_wakes_when_the_clock_is_moved_from_anywhere(movable: Path) -> None:
    with open_store(movable) as store:
        bell, woken = store.arrival_bell(), threading.Event()
        before = bell.heard()

        def sleep() -> None:
            bell.wait(before, 60)
            woken.set()

        sleeper = threading.Thread(target=sleep)
        sleeper.start()
        in_child(lambda: clock.move(movable, timedelta(seconds=1)))
        assert woken.wait(10)
        sleeper.join()


@pytest.mark.guarantee("G62")
def test_a_process_follows_one_clock_at_a_time(movable: Path, tmp_path: Path) -> None:
    with open_store(movable), pytest.raises(ConfigMismatch, match="which follows a clock that tests move") as refused:
        open_store(tmp_path / "production")
    assert "give code under test the store of the test" in str(refused.value)
    with open_store(tmp_path / "production"), pytest.raises(ConfigMismatch, match="the clock of the host"):
        open_store(movable)
    with open_store(movable):
        pass


def test_a_store_that_nobody_closed_keeps_no_test_from_its_clock(movable: Path, tmp_path: Path) -> None:
    abandon(open_store(tmp_path / "left", housekeeping=False))
    with open_store(movable):
        clock.advance(timedelta(hours=1))
        assert ahead_ms() == pytest.approx(3_600_000, abs=1_000)


def test_a_forked_child_that_opens_no_store_follows_the_host(movable: Path, tmp_path: Path) -> None:
    def look() -> None:
        assert ahead_ms() == pytest.approx(0, abs=1_000)
        open_store(tmp_path / "production").close()

    with open_store(movable):
        clock.advance(timedelta(hours=1))
        in_child(look)


@pytest.mark.guarantee("G62")
def test_the_clock_of_a_store_that_was_made_without_one_cannot_be_moved(tmp_path: Path) -> None:
    with open_store(tmp_path), pytest.raises(ConfigMismatch, match="follows the clock of the host"):
        clock.advance(timedelta(hours=1))
    with pytest.raises(ConfigMismatch, match="only a store that is not made yet"):
        clock.make(tmp_path)


@pytest.mark.parametrize("factor", [0, -1, 1_001, 1.5, "2"])
def test_a_clock_runs_at_a_whole_speed_up_to_a_thousand(tmp_path: Path, factor: int) -> None:
    with pytest.raises(ValueError, match="whole number of seconds per second, from 1 to 1000"):
        clock.make(tmp_path, factor=factor)


@pytest.mark.parametrize("by", [timedelta(seconds=-1), timedelta(days=366 * 50 + 1)])
def test_a_clock_is_moved_forward_and_not_for_ever(movable: Path, by: timedelta) -> None:
    with open_store(movable), pytest.raises(ValueError, match="not negative, and at most"):
        clock.advance(by)


@pytest.mark.parametrize("content", [b"", b"RMQCLOCK", b"\0" * 4096])
def test_a_file_that_is_no_clock_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "clock").write_bytes(content)
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(StoreCorrupt, match="not the clock of a test"):
        open_store(tmp_path)
    assert set(Path("/proc/self/fd").iterdir()) == before
