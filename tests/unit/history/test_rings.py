"""Rings keep what fits, count nothing twice, and say nothing of what is damaged or was never counted."""

from __future__ import annotations

import json
import random
import zlib
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rmqclient.store import layout
from rmqclient.store.history import rings
from rmqclient.store.history.rings import CLASSES, COUNTERS, Head, HistoryFile, Known, Record, Row, code_of, sum_of


def head_of() -> Head:
    return Head(sequence=0, ended_ms=0, epoch=7)


def write(file: HistoryFile, head: Head, level: int, rows: dict[int, Row], ended_ms: int = 0) -> None:
    """Add one record, and count it."""
    head.sequence += 1
    file.append(head, level, Record.of(head.rings[level].number, head.ended_ms, ended_ms, rows))
    head.ended_ms = ended_ms
    assert file.write_head(head)


def row(handled: int) -> Row:
    return Row(published=handled, handled=handled, waited=(handled, *[0] * (CLASSES - 1)))


def busy_rows(groups: int, a_second: int, seconds: int, chosen: random.Random) -> dict[int, Row]:
    """Return what so many groups do: each at a pace of its own, with times that spread as those of real handlers do."""
    rows = {}
    for group in range(1, groups + 1):
        count = max(1, round(chosen.gauss(a_second * seconds, (a_second * seconds) ** 0.5)))
        waited, ran = (
            spread(count, pace, width, chosen) for pace, width in ((group % 8 / 2, 0.8), (group % 5 / 1.2, 0.5))
        )
        done = Row(
            count, count, int(group % 5 == 0), 0, 0, 0, 0, chosen.randrange(20), chosen.randrange(50), waited, ran
        )
        rows[group] = done
    return rows


def spread(count: int, pace: float, width: float, chosen: random.Random) -> tuple[int, ...]:
    classes = [0] * CLASSES
    measured = min(count, 1_000)
    for _ in range(measured):
        classes[bisect_left(layout.HANDLING_BOUNDS_MS, chosen.lognormvariate(pace, width))] += 1
    return tuple(each * count // measured for each in classes)


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = {
        3: Row(
            70_000, 65_536, 255, 256, 0, 70_001, 3, 5, 1 << 33, (7, *[0] * (CLASSES - 1)), (*[0] * (CLASSES - 1), 1)
        ),
        900: Row(handled=1),
    }
    head = head_of()
    with HistoryFile(tmp_path, writable=True) as file:
        write(file, head, 0, written, 10)
        write(file, head, 0, {}, 20)
    with HistoryFile(tmp_path) as file:
        records = file.records(file.head() or head_of(), 0)
    assert [(each.number, each.began_ms, each.ended_ms) for each in records] == [(1, 0, 10), (2, 10, 20)]
    assert [each.rows() for each in records] == [written, {}]


@pytest.mark.parametrize("count", [*range(8), 8, 15, 16, 63, 100, 4_500, 90_000, 2**31])
def test_a_count_of_a_histogram_is_exact_below_8_and_right_to_an_eighth_above(count: int) -> None:
    read = Record.of(1, 0, 1, {1: Row(handled=1, ran=(count, *[0] * (CLASSES - 1)))}).rows()[1].ran[0]
    assert read == count if count < 8 else abs(read - count) <= count / 8


def test_codes_of_counts_rise_with_the_counts() -> None:
    assert all(code_of(count) <= code_of(after) for count, after in pairwise(range(5_000)))


def test_a_full_ring_goes_on_at_its_beginning_over_the_oldest_records(tmp_path: Path) -> None:
    head, chosen = head_of(), random.Random(1)
    rows = busy_rows(600, 10, 10, chosen)
    with HistoryFile(tmp_path, writable=True) as file:
        for number in range(1, 301):
            write(file, head, 0, rows, number)
        numbers = [each.number for each in file.records(head, 0)]
    assert 50 < len(numbers) < 150
    assert numbers == list(range(numbers[0], 301))
    assert (tmp_path / layout.HISTORY_FILE).stat().st_size <= rings.SIZE


def test_a_record_that_no_head_counts_is_not_there_and_its_place_is_written_again(tmp_path: Path) -> None:
    with HistoryFile(tmp_path, writable=True) as file:
        head = head_of()
        write(file, head, 0, {1: row(1)}, 10)
        file.append(head, 0, Record.of(2, 10, 20, {1: row(500)}))  # and is killed
        again = file.head()
        assert again is not None
        assert [each.number for each in file.records(again, 0)] == [1]
        write(file, again, 0, {1: row(2)}, 20)
        assert sum_of(file.records(again, 0))[1].handled == 3


def test_a_record_that_was_not_counted_at_the_end_of_a_ring_is_not_counted_when_the_next_one_stands_at_its_begin(
    tmp_path: Path,
) -> None:
    large, small = busy_rows(600, 10, 10, random.Random(2)), {1: row(1)}
    with HistoryFile(tmp_path, writable=True) as file:
        head = head_of()
        end, size = head.rings[0], layout.HISTORY_RINGS[0][1]
        end.at = size - 200
        write(file, head, 0, small, 10)
        file.append(head, 0, Record.of(2, 10, 20, {1: row(500)}))  # it fits, and its process is killed
        again = file.head()
        assert again is not None
        write(file, again, 0, large, 20)
        assert again.rings[0].at < size - 200
        assert [each.rows()[1].handled for each in file.records(again, 0)] == [1, large[1].handled]


@pytest.mark.parametrize("turn", [0, 1])
def test_of_two_heads_a_damaged_one_leaves_the_other(tmp_path: Path, turn: int) -> None:
    head = head_of()
    with HistoryFile(tmp_path, writable=True) as file:
        for number in range(1, 3):
            write(file, head, 0, {}, number)
    with (tmp_path / layout.HISTORY_FILE).open("r+b") as content:
        content.seek(turn * layout.HISTORY_HEAD_BYTES + layout.HISTORY_HEAD.size + 5)
        content.write(b"\xff\xff")
    with HistoryFile(tmp_path) as file:
        left = file.head()
    assert left is not None
    assert left.sequence == 1 + turn  # the second head stands in the place of the first turn


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.update(something="new"),
        lambda fields: fields.pop("epoch"),
        lambda fields: fields["rings"].append({"number": 1, "at": 0, "summed": 1}),
        lambda fields: fields["groups"]["mail"]["counts"].append(0),
        lambda fields: fields["groups"]["mail"].update(something="new"),
        lambda fields: fields.update(groups=[]),
    ],
)
def test_a_head_of_another_version_is_no_head(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    head = head_of()
    head.groups["mail"] = Known(1, 0)
    fields = asdict(head)
    change(fields)
    document = zlib.compress(json.dumps(fields).encode())
    begin = rings._HEAD.pack(b"RMQHIST1", 1, len(document), 0)[:-4]
    content = rings._HEAD.pack(b"RMQHIST1", 1, len(document), zlib.crc32(begin + document)) + document
    (tmp_path / layout.HISTORY_FILE).write_bytes(content)
    with HistoryFile(tmp_path) as file:
        assert file.head() is None


def test_a_damaged_record_is_stepped_over(tmp_path: Path) -> None:
    head = head_of()
    with HistoryFile(tmp_path, writable=True) as file:
        for number in range(1, 4):
            write(file, head, 0, {1: row(number)}, number)
    at = 2 * layout.HISTORY_HEAD_BYTES
    with (tmp_path / layout.HISTORY_FILE).open("r+b") as content:
        content.seek(at + layout.HISTORY_RECORD.size + 3)
        content.write(b"\xff")
    with HistoryFile(tmp_path) as file:
        assert [each.number for each in file.records(file.head() or head, 0)] == [2, 3]


def test_a_head_has_room_for_hundreds_of_groups_with_any_counters(tmp_path: Path) -> None:
    chosen = random.Random(3)
    head = head_of()
    for number in range(300):
        classes = [chosen.randrange(10**6) if chosen.random() < 0.5 else 0 for _ in range(2 * CLASSES)]
        counts = [chosen.randrange(10**8) for _ in COUNTERS]
        head.groups[f"a-group-of-an-application-{number}"] = Known(number, 5, counts, classes)
        head.topics[f"a-topic-of-an-application-{number}"] = chosen.randrange(10**8)
    with HistoryFile(tmp_path, writable=True) as file:
        assert file.write_head(head)
        assert file.head() == head


@pytest.mark.guarantee("G127")
def test_8_mib_hold_an_hour_a_day_and_30_days_of_100_groups_that_are_always_busy() -> None:
    chosen = random.Random(4)
    for (seconds, room), count in zip(layout.HISTORY_RINGS, (360, 1_440, 2_880), strict=True):
        sizes = [len(Record.of(1, 0, 1, busy_rows(100, 10, seconds, chosen)).encoded()) for _ in range(4)]
        assert max(sizes) * count <= room, f"records of {seconds} s have {max(sizes)} bytes"
    assert rings.SIZE == 8 << 20
