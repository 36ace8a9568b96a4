"""When a worker is started again: doubling delays, forgotten by health, and crash loops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.workers.processes.restart_policy import Restart, RestartHistory, RestartPolicy

POLICY = RestartPolicy()


def fail(*healthy_s: float | None, jitter: float = 0.0) -> Restart:
    """The decision about the last of some failures, each after so many seconds of health (None: never ready)."""
    restart = Restart(history=RestartHistory(), delay_s=0.0, crash_loop=False)
    for lived in healthy_s:
        restart = POLICY.after_failure(restart.history, healthy_s=lived, jitter=jitter)
    return restart


@pytest.mark.parametrize(
    ("failures", "delay_s"), [(1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (8, 12.8), (9, 25.6), (10, 30.0), (19, 30.0)]
)
def test_the_delay_doubles_with_each_failure_up_to_half_a_minute(failures: int, delay_s: float) -> None:
    assert fail(*[5.0] * failures).delay_s == pytest.approx(delay_s)


def test_chance_takes_up_to_half_of_the_delay() -> None:
    assert fail(5.0, 5.0, jitter=0.5).delay_s == pytest.approx(0.15)
    assert fail(5.0, 5.0, jitter=0.999).delay_s == pytest.approx(0.1, rel=0.01)


def test_a_healthy_minute_forgets_all_failures() -> None:
    assert fail(*[5.0] * 9, 60.0).delay_s == pytest.approx(0.1)
    assert fail(*[5.0] * 9, 59.0).delay_s == pytest.approx(30.0)


def test_five_failures_without_being_ready_are_a_crash_loop() -> None:
    assert not fail(*[None] * 4).crash_loop
    assert fail(*[None] * 5).crash_loop
    assert fail(*[None] * 5).delay_s == 30.0


def test_being_ready_in_between_is_no_failed_boot() -> None:
    assert not fail(*[None] * 4, 1.0, *[None] * 4).crash_loop


def test_a_message_that_kills_its_process_at_each_of_its_attempts_is_no_crash_loop() -> None:
    attempts_of_a_message = 16
    assert not fail(*[1.0] * attempts_of_a_message).crash_loop
    assert fail(*[1.0] * 20).crash_loop


def test_ten_healthy_seconds_end_a_crash_loop() -> None:
    assert fail(*[None] * 9).crash_loop
    assert not fail(*[None] * 9, 10.0).crash_loop


@given(st.lists(st.none() | st.floats(0, 1e6), min_size=1, max_size=300), st.floats(0, 1, exclude_max=True))
def test_a_delay_is_never_above_half_a_minute_nor_below_half_of_the_first(
    lives: list[float | None], jitter: float
) -> None:
    assert 0.05 <= fail(*lives, jitter=jitter).delay_s <= 30.0
