"""What kills and power cuts leave in the history and the marks is no problem of a store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqclient.store import layout, open_store
from rmqclient.store.history.rings import HistoryFile
from rmqclient.store.inspect.verify import verify
from rmqclient.store.marks import MARKS_FILE, MOST_BYTES, OLD_MARKS_FILE
from tests.support.stores import SMALL
from tests.unit.inspect.broken import write_history


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store", SMALL) as store:
        store.marks.write("pause", "mail", "SMTP is down")
    return tmp_path / "store"


def test_a_ring_that_went_round_has_no_problem(root: Path) -> None:
    with HistoryFile(root, writable=True) as file:
        head = write_history(file, 10)
        head.rings[0].at = layout.HISTORY_RINGS[0][1] - 200
        write_history_on(file, head, 40)
    assert verify(root) == []


def write_history_on(file: HistoryFile, head: object, count: int) -> None:
    assert file.write_head(head)  # type: ignore[arg-type]
    write_history(file, count)


def test_a_record_that_a_killed_process_did_not_finish_is_no_problem(root: Path) -> None:
    with HistoryFile(root, writable=True) as file:
        head = write_history(file, 3)
        at = file.position(0, head.rings[0].at)
        with (root / layout.HISTORY_FILE).open("r+b") as content:
            content.seek(at)
            content.write(b"RMQh" + os.urandom(40))
    assert verify(root) == []


def test_a_head_that_a_killed_process_did_not_finish_is_no_problem(root: Path) -> None:
    with HistoryFile(root, writable=True) as file:
        head = write_history(file, 3)
    with (root / layout.HISTORY_FILE).open("r+b") as content:
        content.seek((head.sequence + 1) % 2 * layout.HISTORY_HEAD_BYTES)
        content.write(os.urandom(100))
    assert verify(root) == []


def test_records_that_a_power_cut_left_as_zeros_are_no_problem(root: Path) -> None:
    with HistoryFile(root, writable=True) as file:
        head = write_history(file, 5)
        lost = file.placed(head, 0)[3:]
        with (root / layout.HISTORY_FILE).open("r+b") as content:
            for each in lost:
                content.seek(file.position(0, each.begin))
                content.write(bytes(each.end - each.begin))
    assert verify(root) == []


@pytest.mark.parametrize(("number", "said"), [(1, "record 1"), (3, "record 3"), (5, "record 5")])
def test_the_oldest_and_the_newest_record_are_looked_at_too(root: Path, number: int, said: str) -> None:
    with HistoryFile(root, writable=True) as file:
        head = write_history(file, 5)
        damaged = file.placed(head, 0)[number - 1]
        with (root / layout.HISTORY_FILE).open("r+b") as content:
            content.seek(file.position(0, damaged.end - 1))
            content.write(b"\xff")
        (problem,) = verify(root)
        assert (problem.invariant, problem.reason) == (18, f"{said} of ring 1 cannot be read")


@pytest.mark.parametrize("left", [b'{"at_ms":17959', b'{"at', bytes(300), b'{"at_ms":1,"kind":"pause","subj\n'])
def test_a_line_that_a_kill_or_a_power_cut_left_is_no_problem(root: Path, left: bytes) -> None:
    with (root / MARKS_FILE).open("ab") as marks:
        marks.write(left)
    assert verify(root) == []


def test_the_marks_before_are_looked_at_too(root: Path) -> None:
    (root / OLD_MARKS_FILE).write_bytes(b"x" * MOST_BYTES + b"\n")
    assert {(each.invariant, each.path.name) for each in verify(root)} == {(19, OLD_MARKS_FILE)}
