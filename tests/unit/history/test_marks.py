"""Marks say what was done, in the order in which it was done, whatever processes and disks do."""

from __future__ import annotations

import os
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from multiprocessing import get_context
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqclient.admin import Admin
from rmqclient.store import Message, open_store
from rmqclient.store.errors import StoreUnusable
from rmqclient.store.marks import KINDS, MARKS_FILE, MOST_BYTES, OLD_MARKS_FILE, marks_of, user
from rmqclient.workers.commands import events
from tests.support.stores import SMALL, TOPIC, abandon, appender_of, grant_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def write_some(root: Path, writer: int) -> None:
    with open_store(root, SMALL, housekeeping=False) as store:
        for number in range(50):
            store.marks.write("pause", f"group-{writer}", f"{number}: größer\nthan a line")


@pytest.mark.guarantee("G128")
def test_a_mark_has_its_time_its_author_and_its_words(root: Path) -> None:
    with open_store(root, SMALL, housekeeping=False) as store:
        store.marks.write("pause", "mail", "SMTP\nis down", author="ada")
        store.marks.write("seek", "mail")
    pause, seek = marks_of(root)
    assert (pause.kind, pause.subject, pause.author, pause.words, pause.pid) == (
        "pause", "mail", "ada", "SMTP\nis down", os.getpid(),
    )  # fmt: skip
    assert seek.author == user()
    assert marks_of(root, kinds=["seek"]) == [seek]
    assert marks_of(root, seek.at_ms + 1) == []


@pytest.mark.guarantee("G128")
def test_marks_of_several_processes_do_not_mix_and_each_keeps_its_order(root: Path) -> None:
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        list(pool.map(write_some, [root] * 3, range(3)))
    marks = [mark for mark in marks_of(root) if mark.kind == "pause"]
    for writer in range(3):
        words = [mark.words for mark in marks if mark.subject == f"group-{writer}"]
        assert words == [f"{number}: größer\nthan a line" for number in range(50)]


@pytest.mark.guarantee("G128")
@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_line_that_a_killed_process_has_left_takes_no_other_with_it(root: Path, cut: int) -> None:
    with open_store(root, SMALL, housekeeping=False) as store:
        store.marks.write("pause", "before")
        store.marks.write("pause", "torn")
        path = root / MARKS_FILE
        os.truncate(path, path.stat().st_size - cut)
        store.marks.write("pause", "after")
    subjects = [mark.subject for mark in marks_of(root)]
    assert subjects == (["before", "torn", "after"] if cut == 1 else ["before", "after"])


def test_the_files_have_a_fixed_size_and_the_last_marks(root: Path) -> None:
    with open_store(root, SMALL, housekeeping=False) as store:
        for number in range(4_000):
            store.marks.write("worker", "worker-1", f"{number} {'x' * 400}")
    sizes = [(root / name).stat().st_size for name in (MARKS_FILE, OLD_MARKS_FILE)]
    assert sum(sizes) <= 2 * (MOST_BYTES + 1_000)
    numbers = [int(mark.words.split()[0]) for mark in marks_of(root)]
    assert numbers == list(range(numbers[0], 4_000))
    assert len(numbers) > 1_000


def test_a_disk_that_is_full_fails_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with open_store(root, SMALL, housekeeping=False) as store:
        grant_of(store) if TOPIC in store.topics.topics() else appender_of(store).append(Message(TOPIC, b"1"))
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", full)
            store.marks.write("pause", "mail")
        store.marks.write("resume", "mail")
    assert [mark.kind for mark in marks_of(root)] == ["resume"]


@pytest.mark.guarantee("G128")
def test_a_store_that_is_opened_after_a_kill_says_so_and_after_a_close_does_not(root: Path) -> None:
    store = open_store(root, SMALL, housekeeping=False)
    abandon(store)
    open_store(root, SMALL, housekeeping=False).close()
    open_store(root, SMALL, housekeeping=False).close()
    assert [(mark.kind, mark.author) for mark in marks_of(root)] == [("opened", "")]


@pytest.mark.guarantee("G128")
def test_what_people_do_to_a_group_is_marked(root: Path) -> None:
    with open_store(root, SMALL, housekeeping=False) as store:
        appender_of(store).append(Message(TOPIC, b"1"))
        grant_of(store, "mail")
        with Admin(root) as admin:
            admin.pause("mail", reason="SMTP is down")
            admin.seek("mail", TOPIC, "latest", dry_run=True)
            admin.seek("mail", TOPIC, "latest")
            admin.resume("mail")
    found = [(mark.kind, mark.subject, mark.author, mark.words) for mark in marks_of(root)]
    assert found == [
        ("pause", "mail", user(), "SMTP is down"),
        ("seek", "mail", user(), f"{TOPIC} 0 to 1"),
        ("resume", "mail", user(), ""),
    ]


@pytest.mark.parametrize("is_there", [False, True])
def test_where_no_store_is_there_are_no_marks(tmp_path: Path, is_there: bool) -> None:
    if is_there:
        (tmp_path / "nowhere").mkdir()
    with pytest.raises(StoreUnusable):
        marks_of(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"[" * 100_000, id="nested"),
        pytest.param(
            b'{"at_ms": %d, "kind": "pause", "subject": "", "author": "", "words": "", "pid": 1}' % 10**18,
            id="a time after the calendar",
        ),
        pytest.param(
            b'{"at_ms": -1, "kind": "pause", "subject": "", "author": "", "words": "", "pid": 1}',
            id="a time before 1970",
        ),
        pytest.param(b'"' + b"x" * (1 << 20) + b'"', id="long"),
        pytest.param(b"\xff\x00", id="no text"),
    ],
)
def test_a_line_that_is_no_mark_is_stepped_over(root: Path, line: bytes) -> None:
    with open_store(root, SMALL, housekeeping=False) as store:
        store.marks.write("pause", "before")
        with (root / MARKS_FILE).open("ab") as file:
            file.write(line + b"\n")
        store.marks.write("pause", "after")
    assert [mark.subject for mark in marks_of(root)] == ["before", "after"]
    assert CliRunner().invoke(events.events, ["--store", str(root)]).exit_code == 0


def test_a_file_of_one_line_is_not_read_whole(root: Path) -> None:
    with open_store(root, SMALL, housekeeping=False):
        pass
    with (root / MARKS_FILE).open("wb") as file:
        file.write(b"x" * (64 << 20))
    tracemalloc.start()
    try:
        assert marks_of(root) == []
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_mark_is_written_also_if_another_process_has_just_renamed_the_file(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(root, SMALL, housekeeping=False) as store:
        (root / MARKS_FILE).write_bytes(b"\n" * (MOST_BYTES + 1))
        held = store.lock.held

        def renamed_before(*words: int) -> AbstractContextManager[None]:
            (root / MARKS_FILE).rename(root / OLD_MARKS_FILE)
            return held(*words)

        monkeypatch.setattr(type(store.lock), "held", lambda _, *words: renamed_before(*words))
        store.marks.write("pause", "mail")
        monkeypatch.undo()
    assert [mark.subject for mark in marks_of(root)] == ["mail"]
    assert caplog.records == []


def test_the_command_knows_the_kinds() -> None:
    assert events.KINDS == KINDS
