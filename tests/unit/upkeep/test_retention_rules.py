"""Which files go: RocketMQ's matrix, and clocks that jump delete nothing.

The matrix is that of RocketMQ's DefaultMessageStoreCleanFilesTest: 55 files, 15 of them old, 10 to a pass.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rmqclient.store import MessageStore
from rmqclient.store.config import RetentionConfig
from rmqclient.store.settings.disk import Usage
from rmqclient.store.upkeep.retention_rules import LONGEST_BELIEVED_MS, Clock, LogFile, Moment, due, removable
from tests.unit.upkeep.retained import DAY, HOUR, NOW, Kept, files, fill

YEAR = 365 * DAY

ONE_HOUR = RetentionConfig(file_reserved_hours=1)
AT_FOUR = Moment(now_ms=NOW, hour=4, used_percent=50.0)
AT_NOON = replace(AT_FOUR, hour=12)


def count(candidates: list[LogFile], moment: Moment, config: RetentionConfig = ONE_HOUR) -> list[int]:
    """Return how many files go, pass by pass, until none does."""
    counts = []
    while found := due(candidates, moment, config):
        assert found == [file.base for file in candidates[: len(found)]], "the oldest ones first"
        candidates = candidates[len(found) :]
        counts.append(len(found))
    return counts


MATRIX = {
    "by time": (files(15, 40), AT_FOUR, [10, 5]),
    "not at another hour": (files(15, 40), AT_NOON, []),
    "at any hour by space": (files(15, 40), replace(AT_NOON, used_percent=75.1), [10, 5]),
    "not yet by space": (files(15, 40), replace(AT_NOON, used_percent=75.0), []),
    "at once by space": (files(0, 55), replace(AT_NOON, used_percent=85.1), [10, 10, 10, 10, 10, 5]),
    "not yet at once": (files(0, 55), replace(AT_NOON, used_percent=85.0), []),
    "on request": (files(15, 40), replace(AT_NOON, requested=True), [10, 5]),
    "on request, on a full disk": (files(15, 40), replace(AT_NOON, requested=True, used_percent=99.0), [10, 5]),
    "on request, but none is old": (files(0, 55), replace(AT_NOON, requested=True), []),
    "none is old": (files(0, 55), AT_FOUR, []),
    "there are none": ([], AT_FOUR, []),
}


@pytest.mark.parametrize("case", MATRIX)
def test_as_many_files_go_in_each_pass_as_in_rocketmq(case: str) -> None:
    candidates, moment, expected = MATRIX[case]
    assert count(candidates, moment) == expected


def test_a_file_goes_when_it_is_exactly_as_old_as_the_reserved_time() -> None:
    assert due([LogFile(0, NOW - HOUR)], AT_FOUR, ONE_HOUR) == [0]
    assert due([LogFile(0, NOW - HOUR + 1)], AT_FOUR, ONE_HOUR) == []


def test_the_first_young_file_keeps_those_behind_it() -> None:
    assert due([*files(2, 1), *files(5, 0)], AT_FOUR, ONE_HOUR) == [0, 4_096]


def test_several_hours_may_be_given_and_forcible_cleaning_be_refused() -> None:
    twice = replace(ONE_HOUR, delete_hours=(4, 12))
    assert count(files(3, 0), AT_NOON, twice) == count(files(3, 0), AT_FOUR, twice) == [3]
    unforced = replace(ONE_HOUR, clean_forcibly=False)
    assert count(files(3, 10), replace(AT_NOON, used_percent=99.0), unforced) == [3]


def test_files_are_looked_at_only_as_far_as_needed() -> None:
    def only_the_first() -> Iterator[LogFile]:
        yield LogFile(0, NOW)
        pytest.fail("a file behind a young one was looked at")

    assert due(only_the_first(), AT_FOUR, ONE_HOUR) == []
    assert due(only_the_first(), AT_NOON, ONE_HOUR) == []


@pytest.mark.parametrize(
    ("bases", "published_to", "flushed_to", "expected"),
    [
        ([0, 10, 20], 25, 25, [0, 10]),
        ([0, 10, 20], 20, 20, [0, 10]),
        ([0, 10], 20, 20, [0]),  # both are full, but the newest file always stays
        ([0, 10, 20], 19, 19, [0]),  # the last one was allocated ahead
        ([0, 10, 20], 25, 9, []),
        ([0, 10, 20], 25, 10, [0]),
        ([10, 20, 30], 35, 35, [10, 20]),
        ([0], 9, 9, []),
        ([], 0, 0, []),
    ],
)
def test_the_newest_file_and_what_is_not_durable_never_go(
    bases: list[int], published_to: int, flushed_to: int, expected: list[int]
) -> None:
    assert removable(bases, 10, published_to, flushed_to) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"delete_hours": (24,)},
        {"delete_hours": ()},
        {"delete_hours": (4, -5)},
        {"file_reserved_hours": 0},
        {"disk_max_used_percent": 86},
        {"disk_full_percent": 84},
        {"disk_full_percent": 101},
        {"disk_max_used_percent": 0},
        {"disk_reserve_bytes": -1},
        {"interval_ms": 0},
    ],
    ids=str,
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(change))}="):
        RetentionConfig(**change)  # type: ignore[arg-type]


@pytest.fixture
def kept(store: MessageStore) -> Kept:
    fill(store, 5)
    return Kept(store)


def test_time_that_passes_makes_files_old(kept: Kept) -> None:
    kept.clock.pass_by(71 * HOUR)
    assert kept.retention.clean() == []
    kept.clock.pass_by(HOUR)
    assert len(kept.retention.clean()) == 4


@pytest.mark.guarantee("G12")
@pytest.mark.parametrize("jump", [-HOUR, HOUR, 10 * YEAR], ids=["-1 h", "+1 h", "+10 y"])
def test_a_clock_that_jumps_in_the_life_of_a_housekeeper_makes_nothing_older(kept: Kept, jump: int) -> None:
    kept.clock.pass_by(71 * HOUR + 30 * 60_000)
    kept.clock.wall += jump
    assert kept.retention.clean() == []
    kept.clock.pass_by(3 * HOUR)
    assert len(kept.retention.clean()) == 4, "and files that are really old go all the same, two hours later at most"


@pytest.mark.guarantee("G12")
@pytest.mark.parametrize(
    "jump", [-10 * YEAR, -HOUR, HOUR, 5 * DAY, 10 * YEAR], ids=["-10 y", "-1 h", "+1 h", "+5 d", "+10 y"]
)
def test_a_clock_that_jumped_before_a_housekeeper_began_deletes_no_young_store(kept: Kept, jump: int) -> None:
    kept.clock.wall += jump
    later = kept.another()
    assert later.clean() == []
    kept.clock.pass_by(70 * HOUR)
    assert later.clean() == []
    kept.clock.pass_by(3 * HOUR)
    assert len(later.clean()) == 4, "watched for the reserved time they go, whatever the wall clock says"


@pytest.mark.guarantee("G12")
def test_a_message_stored_after_the_jump_makes_the_clock_no_more_credible(kept: Kept) -> None:
    # Given a clock that jumped by ten years, and then a message, so that the store does not look forgotten
    kept.clock.wall += 10 * YEAR
    kept.store.state.last_store_timestamp = kept.clock.wall
    assert kept.another().clean() == []


def test_the_age_of_a_file_is_that_of_its_newest_message_when_its_modification_time_was_lost(kept: Kept) -> None:
    # Given a copy that kept no times, or a tool that set them back
    for path in kept.store.log_files.directory.iterdir():
        os.utime(path, (0, 0))
    kept.clock.pass_by(71 * HOUR)
    assert kept.retention.clean() == []
    # And the other way round: times of modification keep what was touched later
    for path in kept.store.log_files.directory.iterdir():
        os.utime(path, (kept.clock.wall / 1000, kept.clock.wall / 1000))
    kept.clock.pass_by(71 * HOUR)
    assert kept.another().clean() == []


def test_a_person_who_asks_is_believed_about_the_clock(kept: Kept) -> None:
    kept.clock.wall += LONGEST_BELIEVED_MS + 100 * HOUR
    later = kept.another()
    assert later.clean() == []
    assert len(later.clean(requested=True)) == 4


def test_a_disk_that_runs_full_needs_no_clock(kept: Kept) -> None:
    kept.store.disk.usage = lambda: Usage(86.0, 1 << 40)  # type: ignore[method-assign]
    assert len(kept.retention.clean()) == 4


def test_the_host_s_own_clocks_are_told_in_milliseconds() -> None:
    clock = Clock()
    before = clock.boottime_ms()
    assert clock.wall_ms() > NOW
    assert 0 <= clock.boottime_ms() - before < 10_000
