"""How messages that wait are delivered on after a failure."""

from __future__ import annotations

import logging

import pytest

from rmqclient.store.errors import StoreBusy, StoreClosed, StoreFull, StorePoisoned
from rmqclient.store.waiting.due_pump import LONGEST_SLEEP_MS, PAUSE_AFTER_FAILURE_S, DuePump


class Delivery:
    """What a pump calls: returns how long to wait, or fails."""

    def __init__(self) -> None:
        self.calls = 0
        self.pause_ms = 0
        self.error: Exception | None = None
        self.pump = DuePump("delay level 3", self)

    def __call__(self) -> int:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.pause_ms


@pytest.fixture
def delivery() -> Delivery:
    return Delivery()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1_000.0]
    monkeypatch.setattr("rmqclient.store.clock.elapsed", lambda: time[0])
    return time


@pytest.mark.parametrize(("due_in_ms", "pause_ms"), [(0, 0), (20, 20), (500, 500), (60_000, LONGEST_SLEEP_MS)])
def test_it_looks_again_when_the_next_message_is_due_and_twice_a_second(
    delivery: Delivery, due_in_ms: int, pause_ms: int
) -> None:
    delivery.pause_ms = due_in_ms
    assert delivery.pump.look() == pause_ms


@pytest.mark.parametrize("error", [StoreClosed("closed"), StoreBusy("busy")], ids=lambda error: type(error).__name__)
def test_a_store_that_is_busy_or_being_closed_is_tried_again_next_time(
    delivery: Delivery, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    delivery.error = error
    with caplog.at_level(logging.WARNING):
        assert [delivery.pump.look(), delivery.pump.look()] == [LONGEST_SLEEP_MS] * 2
    assert delivery.calls == 2
    assert not caplog.records


@pytest.mark.parametrize("error", [StoreFull("no room"), OSError("refused")], ids=lambda error: type(error).__name__)
def test_after_a_failure_it_waits_and_says_so_once(
    delivery: Delivery, now: list[float], error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    delivery.error = error
    with caplog.at_level(logging.ERROR):
        assert [delivery.pump.look(), delivery.pump.look()] == [LONGEST_SLEEP_MS] * 2
    assert delivery.calls == 1
    assert [record.getMessage() for record in caplog.records] == [f"delay level 3 waits for 10 s: {error}"]

    delivery.error = None
    now[0] += PAUSE_AFTER_FAILURE_S
    assert delivery.pump.look() == 0
    assert delivery.calls == 2


def test_a_failed_disk_is_not_reported_again(delivery: Delivery, caplog: pytest.LogCaptureFixture) -> None:
    delivery.error = StorePoisoned("every sender is told")
    with caplog.at_level(logging.INFO):
        delivery.pump.look()
    assert not caplog.records
