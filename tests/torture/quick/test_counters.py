"""Some kills of senders and consumers, whose groups count what became of each message."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.metrics import GroupTotals, Sample, by_group
from tests.torture.kills import counters

UNKILLED = 5
"""A seed whose first sender is not killed, so that some of its messages are poison."""


@pytest.mark.crash
@pytest.mark.guarantee("G50")
@pytest.mark.sweep
def test_random_kills_leave_counters_that_count_each_message_once(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    result = counters.run(seed, 12, tmp_path)
    print(result)
    assert result.problems == []
    assert result.figures["kills of consumers"]


def test_the_rig_notices_a_message_that_is_counted_by_another_fate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(sample: Sample) -> dict[tuple[str, str], GroupTotals]:
        totals = by_group(sample)
        found = totals[counters.ORDERED, counters.TOPIC]
        wrongly = replace(found, handled=found.handled - 1, retried=found.retried + 1)
        return {**totals, (counters.ORDERED, counters.TOPIC): wrongly}

    monkeypatch.setattr(counters, "by_group", wrong)
    result = counters.run(7, 1, tmp_path)
    told = [problem.split(":")[0] for problem in result.problems]
    assert told == [f"{counters.ORDERED} at first"] * 2 + [counters.ORDERED]


@pytest.mark.parametrize("times", [0, 2])
def test_the_rig_notices_failed_attempts_that_are_not_counted_or_counted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    def wrong(sample: Sample) -> dict[tuple[str, str], GroupTotals]:
        totals = by_group(sample)
        found = totals[counters.SIDE, counters.TOPIC]
        return {**totals, (counters.SIDE, counters.TOPIC): replace(found, failed=times * found.failed)}

    monkeypatch.setattr(counters, "by_group", wrong)
    result = counters.run(UNKILLED, 1, tmp_path)
    assert [problem.split(":")[0] for problem in result.problems] == [counters.SIDE]
