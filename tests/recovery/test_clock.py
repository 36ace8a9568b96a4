"""Clocks that jumped: what is recovered is decided by commit log offsets alone, whatever the wall clock says."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.store import Message, open_store
from rmqclient.store.settings import checkpoint
from rmqclient.store.settings.checkpoint import Checkpoint
from tests.recovery.scenes import FILE_BYTES, Expected, Written, check, copy, log_path
from tests.support.oracle import reference
from tests.support.written import ORDERS, SMALL, appender_of

YEAR_MS = 365 * 86_400_000

SHIFTS = {"ten years ahead": 10 * YEAR_MS, "an hour ahead": 3_600_000, "ten years behind": -10 * YEAR_MS}
"""How far the clock at writing was from the one at opening."""


@pytest.fixture(params=SHIFTS)
def shift_ms(request: pytest.FixtureRequest) -> int:
    return SHIFTS[request.param]


def shift_everything(root: Path, written: Written, shift_ms: int) -> Written:
    """Make all times of a store other ones: those in records, in the checkpoint, and of the files."""
    shifted = [
        (
            offset,
            replace(
                record,
                born_timestamp=record.born_timestamp + shift_ms,
                store_timestamp=record.store_timestamp + shift_ms,
                size=record.size,
                has_crc=True,
            ),
        )
        for offset, record in written
    ]
    for offset, record in shifted:
        content = reference.encode(record)
        assert len(content) == record.size
        base = offset - offset % FILE_BYTES
        with log_path(root, base).open("r+b") as file:
            file.seek(offset - base)
            file.write(content)
    marks, low_water = checkpoint.read(root)
    newest, index = marks.commit_log_timestamp, marks.index_timestamp
    shifted_marks = Checkpoint(newest and newest + shift_ms, newest and newest + shift_ms, index and index + shift_ms)
    checkpoint.write(root, shifted_marks, low_water)
    for path in root.rglob("*"):
        when = time.time() + shift_ms / 1000
        if path.name not in {"lock", "shared"}:
            os.utime(path, (when, when))
    return shifted


def test_a_clock_that_jumped_changes_nothing_of_what_is_recovered(
    original: Path, written: Written, target: Path, way: str, shift_ms: int
) -> None:
    root = copy(original, way, target)
    if not (root / "checkpoint").exists():
        checkpoint.write(root, Checkpoint())
    shifted = shift_everything(root, written, shift_ms)
    check(root, Expected(written=shifted))


def test_a_clock_that_jumped_does_not_hide_a_torn_tail(
    original: Path, written: Written, target: Path, shift_ms: int
) -> None:
    root = copy(original, "copied", target)
    shifted = shift_everything(root, written, shift_ms)
    end = written[-1][0] + written[-1][1].size
    with log_path(root, end - end % FILE_BYTES).open("r+b") as file:
        file.seek(end % FILE_BYTES)
        file.write(b"torn")
    check(root, Expected(written=shifted, cut=True))


def test_a_clock_that_was_set_right_is_believed_again(target: Path) -> None:
    # Given a store that was written to by a clock ten years ahead
    with open_store(target, SMALL, housekeeping=False) as store:
        appender_of(store).append(Message(ORDERS, b"ahead"))
    shift_everything(target, reference.read_commit_log(target), 10 * YEAR_MS)
    (target / "shared").unlink()

    # When it is opened by one that is right
    now_ms = time.time_ns() // 1_000_000
    with open_store(target, housekeeping=False) as store:
        assert appender_of(store).append(Message(ORDERS, b"after")).queue_offset == 1

    # Then new messages have the right time
    first, second = (record.store_timestamp for _, record in reference.read_commit_log(target))
    assert first > now_ms + 9 * YEAR_MS
    assert now_ms <= second < now_ms + 600_000


@pytest.mark.parametrize("timestamp", [-(2**63), -1, 2**63 - 1])
def test_an_impossible_time_in_the_checkpoint_does_not_keep_a_store_closed(
    original: Path, written: Written, target: Path, timestamp: int
) -> None:
    root = copy(original, "copied", target)
    _, low_water = checkpoint.read(root)
    checkpoint.write(root, Checkpoint(timestamp, timestamp, timestamp, 0), low_water)
    check(root, Expected(written=written))
