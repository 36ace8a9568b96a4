"""Commit log files that are lost, cut short, grown, swapped, or brought from elsewhere.

What is served: every record that is still there. What is lost is reported with its offsets, keeps its queue offsets,
and is stepped over. Nothing that is there is deleted.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rmqclient.store.settings import checkpoint
from tests.recovery.scenes import (
    FILE_BYTES,
    PAGE,
    Expected,
    Written,
    bases_of,
    check,
    copy,
    killed_store,
    log_path,
    place,
    truncate,
)
from tests.support.oracle import reference

GAP = {1, 6}
"""Invariants that do not hold while records are missed."""

pytestmark = pytest.mark.guarantee("G5")


def lost_from(written: Written, base: int, position: int = 0) -> set[int]:
    """Return the records of one file that end behind a position in it."""
    end = base + FILE_BYTES
    return {offset for offset, record in written if base <= offset < end and offset + record.size > base + position}


def end_of(written: Written) -> int:
    offset, record = written[-1]
    return offset + record.size


def without_the_first_file(written: Written, base: int) -> Expected:
    """The log begins later: as after retention, nobody misses what stood before."""
    lost = lost_from(written, base)
    return Expected(written=written, lost=lost, forgotten=lost)


def without_the_middle_file(written: Written, base: int) -> Expected:
    return Expected(
        written=written, lost=lost_from(written, base), quarantined=[(base, base + FILE_BYTES)], problems=GAP
    )


def without_the_last_file(written: Written, base: int, way: str) -> Expected:
    """A store without a durable mark does not know that there was more."""
    if way == "of a broker":
        lost = lost_from(written, base)
        return Expected(written=written, lost=lost, forgotten=lost, put_away=[], cut=False)
    return without_the_middle_file(written, base)


# --- lost -------------------------------------------------------------------------------------------


def test_a_lost_first_file_leaves_a_log_that_begins_later(
    original: Path, written: Written, target: Path, way: str
) -> None:
    root, base = copy(original, way, target), bases_of(written)[0]
    log_path(root, base).unlink()
    check(root, without_the_first_file(written, base))


def test_a_lost_middle_file_is_a_gap_and_all_else_is_served(
    original: Path, written: Written, target: Path, way: str
) -> None:
    root, base = copy(original, way, target), place(bases_of(written), "middle")
    log_path(root, base).unlink()
    check(root, without_the_middle_file(written, base))


def test_two_lost_files_side_by_side_are_one_gap(original: Path, written: Written, target: Path, way: str) -> None:
    root, bases = copy(original, way, target), bases_of(written)
    lost = lost_from(written, bases[1]) | lost_from(written, bases[2])
    for base in bases[1:3]:
        log_path(root, base).unlink()
    check(root, Expected(written=written, lost=lost, quarantined=[(bases[1], bases[3])], problems=GAP))


@pytest.mark.parametrize("way", ["closed", "copied"])
def test_a_lost_last_file_is_a_gap_and_appends_go_on_in_the_next(
    original: Path, written: Written, target: Path, way: str
) -> None:
    root, base = copy(original, way, target), bases_of(written)[-1]
    log_path(root, base).unlink()
    check(root, without_the_middle_file(written, base))
    assert not log_path(root, base).exists(), "a broker would take its zeros for the end of the log"
    assert log_path(root, base + FILE_BYTES).exists()


def test_a_lost_last_file_of_a_store_without_a_mark_is_not_missed(
    original: Path, written: Written, target: Path
) -> None:
    root, base = copy(original, "of a broker", target), bases_of(written)[-1]
    log_path(root, base).unlink()
    lost = lost_from(written, base)
    check(root, Expected(written=written, lost=lost, forgotten=lost, renumbered=True))


@pytest.mark.parametrize("way", ["closed", "copied"])
def test_all_files_lost_leave_an_empty_log_that_goes_on_with_the_right_numbers(
    original: Path, written: Written, target: Path, way: str
) -> None:
    root, bases = copy(original, way, target), bases_of(written)
    for base in bases:
        log_path(root, base).unlink()
    lost = {offset for offset, _ in written}
    check(root, Expected(written=written, lost=lost, forgotten=lost, quarantined=[(0, bases[-1] + FILE_BYTES)]))


@pytest.mark.parametrize("rebooted", [False, True])
def test_a_lost_file_above_the_mark_is_a_gap_and_no_torn_tail(target: Path, rebooted: bool) -> None:
    # Given a store whose last process was killed, with its later files above the durable mark
    killed_store(target)
    written = reference.read_commit_log(target)
    base = bases_of(written)[-2]
    _, low_water = checkpoint.read(target)
    assert low_water is not None
    assert low_water.flushed_to < base
    if rebooted:
        (target / "shared").unlink()
    log_path(target, base).unlink()
    check(target, without_the_middle_file(written, base))


@pytest.mark.parametrize("number", [-1, -2])
def test_queue_offsets_of_lost_records_at_the_end_are_not_given_again(target: Path, number: int) -> None:
    # Given a killed process, whose runtime file vouches for records of a lost file that no mark says are dispatched
    killed_store(target)
    written = reference.read_commit_log(target)
    bases = bases_of(written)
    for base in bases[number:]:
        log_path(target, base).unlink()
    lost = {offset for offset, _ in written if offset >= bases[number]}
    gap = (bases[number], bases[-1] + FILE_BYTES)
    check(target, Expected(written=written, lost=lost, quarantined=[gap], problems=GAP))


# --- of another size --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, PAGE, FILE_BYTES // 2 + 11, FILE_BYTES - PAGE, FILE_BYTES - 1])
@pytest.mark.parametrize("which", ["first", "middle"])
def test_a_file_cut_short_costs_the_records_behind_the_cut(
    original: Path, written: Written, target: Path, way: str, which: str, size: int
) -> None:
    root, base = copy(original, way, target), place(bases_of(written), which)
    truncate(log_path(root, base), size)
    lost = lost_from(written, base, size)
    last = max(offset + record.size for offset, record in written if base <= offset < base + FILE_BYTES)
    begin = min(lost, default=last)
    gap = [(begin, base + FILE_BYTES)] if lost else []
    check(
        root,
        Expected(
            written=written,
            lost=lost,
            quarantined=gap,
            plan=[f"has {size} bytes instead of {FILE_BYTES}: zeros"],
            problems=GAP if lost else set(),
        ),
    )


@pytest.mark.parametrize("size", [0, 1, PAGE, FILE_BYTES // 4])
def test_a_last_file_cut_short_is_missed_up_to_the_mark(
    original: Path, written: Written, target: Path, way: str, size: int
) -> None:
    root, base = copy(original, way, target), bases_of(written)[-1]
    truncate(log_path(root, base), size)
    lost = lost_from(written, base, size)
    assert lost
    if way == "of a broker":
        torn = size > 1  # the first byte of a record is zero
        expected = Expected(written=written, lost=lost, forgotten=lost, renumbered=True, cut=torn)
    else:
        gap = [(min(lost), end_of(written))]
        expected = Expected(written=written, lost=lost, quarantined=gap, problems=GAP)
    check(root, expected)


@pytest.mark.parametrize("surplus", [b"\0" * PAGE, b"x", random.Random(5).randbytes(FILE_BYTES)])
@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_what_stands_behind_the_end_of_a_grown_file_is_put_away(
    original: Path, written: Written, target: Path, way: str, which: str, surplus: bytes
) -> None:
    root, base = copy(original, way, target), place(bases_of(written), which)
    with log_path(root, base).open("ab") as file:
        file.write(surplus)
    kept = [f"commitlog-{base:020d}.surplus-"] if surplus.strip(b"\0") else []
    said = f"has {FILE_BYTES + len(surplus)} bytes instead of {FILE_BYTES}"
    check(root, Expected(written=written, put_away=kept, plan=[said]))
    if kept:
        (put_away,) = (root / "quarantined").iterdir()
        assert put_away.read_bytes() == surplus


# --- with other content -----------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["first", "middle"])
def test_a_file_of_rubbish_is_a_gap_and_is_kept(
    original: Path, written: Written, target: Path, way: str, which: str
) -> None:
    root, base = copy(original, way, target), place(bases_of(written), which)
    rubbish = random.Random(base).randbytes(FILE_BYTES)
    log_path(root, base).write_bytes(rubbish)
    check(root, without_the_middle_file(written, base))
    assert log_path(root, base).read_bytes() == rubbish


def test_a_last_file_of_rubbish_is_kept_and_the_log_goes_on_elsewhere(
    original: Path, written: Written, target: Path, way: str
) -> None:
    root, base = copy(original, way, target), bases_of(written)[-1]
    rubbish = random.Random(base).randbytes(FILE_BYTES)
    log_path(root, base).write_bytes(rubbish)
    if way == "of a broker":
        lost = lost_from(written, base)
        name = f"commitlog-{base:020d}.0"
        check(root, Expected(written=written, lost=lost, forgotten=lost, renumbered=True, cut=True, put_away=[name]))
        assert (root / "quarantined" / name).read_bytes() == rubbish
    else:
        check(root, without_the_middle_file(written, base))
        assert log_path(root, base).read_bytes() == rubbish


def test_two_swapped_files_are_gaps_and_are_kept(original: Path, written: Written, target: Path, way: str) -> None:
    root, bases = copy(original, way, target), bases_of(written)
    one, other = log_path(root, bases[1]), log_path(root, bases[3])
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])
    lost = lost_from(written, bases[1]) | lost_from(written, bases[3])
    gaps = [(bases[1], bases[2]), (bases[3], bases[4])]
    check(root, Expected(written=written, lost=lost, quarantined=gaps, problems={2, 6}))
    assert (one.read_bytes(), other.read_bytes()) == (contents[1], contents[0])


@pytest.mark.parametrize("way", ["closed", "copied"])
def test_a_last_file_swapped_with_another_is_not_cut(original: Path, written: Written, target: Path, way: str) -> None:
    root, bases = copy(original, way, target), bases_of(written)
    one, last = log_path(root, bases[1]), log_path(root, bases[-1])
    contents = one.read_bytes(), last.read_bytes()
    one.write_bytes(contents[1])
    last.write_bytes(contents[0])
    lost = lost_from(written, bases[1]) | lost_from(written, bases[-1])
    gaps = [(bases[1], bases[2]), (bases[-1], bases[-1] + FILE_BYTES)]
    check(root, Expected(written=written, lost=lost, quarantined=gaps, problems={2, 6}))
    assert (one.read_bytes(), last.read_bytes()) == (contents[1], contents[0])
    one.write_bytes(contents[0])
    last.write_bytes(contents[1])  # nothing is lost for good: whoever swaps them back has everything


@pytest.mark.parametrize("distance", [1, 7])
def test_a_foreign_file_behind_the_end_is_put_away(
    original: Path, written: Written, target: Path, way: str, distance: int
) -> None:
    root, base = copy(original, way, target), bases_of(written)[-1] + distance * FILE_BYTES
    rubbish = random.Random(distance).randbytes(FILE_BYTES)
    log_path(root, base).write_bytes(rubbish)
    name = f"commitlog-{base:020d}.0"
    check(root, Expected(written=written, put_away=[name]))
    assert (root / "quarantined" / name).read_bytes() == rubbish


@pytest.mark.parametrize(
    "name", ["backup.tar", "00000000000000000000.bak", "1", f"{FILE_BYTES + 1:020d}", f"{0:021d}", "\u0660" * 20]
)
def test_a_file_of_a_foreign_name_is_passed_over_and_left_alone(
    original: Path, written: Written, target: Path, way: str, name: str
) -> None:
    root = copy(original, way, target)
    foreign = root / "commitlog" / name
    foreign.write_bytes(bytes(FILE_BYTES - 1) + b"x")
    check(root, Expected(written=written))
    assert foreign.read_bytes() == bytes(FILE_BYTES - 1) + b"x"
