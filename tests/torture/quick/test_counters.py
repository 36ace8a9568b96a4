"""Some kills of senders and consumers, whose groups count what became of each message."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient import Producer
from rmqclient.metrics import GroupTotals, Observation, Sampler, by_group
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
    def wrong(found: GroupTotals) -> GroupTotals:
        return replace(found, handled=found.handled - 1, retried=found.retried + 1)

    monkeypatch.setattr(counters, "by_group", with_one_changed(counters.ORDERED, wrong))
    result = counters.run(7, 1, tmp_path)
    told = [problem.split(":")[0] for problem in result.problems]
    assert told[:2] == [f"{counters.ORDERED} at first"] * 2
    assert set(told[2:]) <= {counters.ORDERED}, "attempts that a kill may have cut off can hide it from the failures"


@pytest.mark.parametrize("times", [0, 2])
def test_the_rig_notices_failed_attempts_that_are_not_counted_or_counted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    def wrong(found: GroupTotals) -> GroupTotals:
        return replace(found, failed=times * found.failed)

    monkeypatch.setattr(counters, "by_group", with_one_changed(counters.SIDE, wrong))
    result = counters.run(UNKILLED, 1, tmp_path)
    assert [problem.split(":")[0] for problem in result.problems] == [counters.SIDE]


def with_one_changed(
    group: str, change: Callable[[GroupTotals], GroupTotals]
) -> Callable[[Observation], dict[tuple[str, str], GroupTotals]]:
    """Return what gives the totals of all groups, one of them changed once it is there."""

    def totals(sample: Observation) -> dict[tuple[str, str], GroupTotals]:
        return {key: change(each) if key == (group, counters.TOPIC) else each for key, each in by_group(sample).items()}

    return totals


def test_the_rig_waits_for_groups_that_are_not_there_yet(tmp_path: Path) -> None:
    with Producer(tmp_path / "store") as producer:
        producer.create_topic(counters.TOPIC, 1)
        with Sampler(tmp_path / "store") as sampler:
            assert not counters.is_finished(sampler.sample())
