"""Views over archives: what retention removed is read from there, and all is one log."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rmqclient.archive import view as archived_view
from rmqclient.archive.archiver import archive
from rmqclient.archive.manifest import queue_file_name
from rmqclient.archive.storage import Object
from rmqclient.archive.view import ArchivedView, JointView, open_view
from rmqclient.errors import ArchiveCorrupt, ArchiveError, ArchiveMismatch, StoreUnusable
from rmqclient.store import MessageQueue, MessageStore, open_store
from rmqclient.store.inspect.view import LocalView, offset_by_time, store_timestamp_of
from tests.support.archived import force, log_bytes, more, rows
from tests.support.written import ORDERS, SMALL, TOP, overwrite

FILE = SMALL.commit_log_file_bytes
QUEUE = MessageQueue(ORDERS, 0)


@pytest.mark.guarantee("G27")
def test_what_retention_removed_is_read_from_the_archive_and_the_rest_locally(
    store: MessageStore, root: Path, target: Path
) -> None:
    before = rows(LocalView(root))
    log = log_bytes(LocalView(root), 0, store.state.published_to)
    archive(root, str(target))
    force(store)
    assert len(rows(LocalView(root))) < len(before) / 4
    joint = open_view(str(root), str(target))
    assert isinstance(joint, JointView)
    assert rows(joint) == before
    assert joint.log_range() == range(store.state.published_to)
    assert log_bytes(joint, 0, store.state.published_to) == log
    assert joint.queues() == LocalView(root).queues()


@pytest.mark.guarantee("G27")
def test_a_joint_view_stays_right_while_the_store_grows_is_archived_and_cleaned(
    store: MessageStore, root: Path, target: Path
) -> None:
    archive(root, str(target))
    joint = open_view(str(root), str(target))
    every = {row[:2]: row for row in rows(joint)}
    for _ in range(4):
        more(store, 150)
        every |= {row[:2]: row for row in rows(LocalView(root))}
        archive(root, str(target))
        force(store)
        joint.release()
        assert {row[:2]: row for row in rows(joint)} == every


def test_blank_entries_for_what_is_gone_locally_are_not_taken_for_messages(
    store: MessageStore, root: Path, target: Path
) -> None:
    # Given consume queues that were written again from what is left of the log
    before = rows(LocalView(root))
    archive(root, str(target))
    force(store)
    low = store.topics.min_offset(QUEUE)
    store.close()
    shutil.rmtree(root / "consumequeue")
    with open_store(root, housekeeping=False) as again:
        assert again.topics.min_offset(QUEUE) == low
    first = low - low % 64
    assert LocalView(root).entries(QUEUE, first, low)[:12] == bytes(8) + b"\x7f\xff\xff\xff"
    # Then the archive has those before
    assert rows(open_view(str(root), str(target))) == before


def test_files_that_retention_removes_during_a_read_come_from_the_archive(
    store: MessageStore, root: Path, target: Path
) -> None:
    # Given a view that knows the local store, and then files removed that it has not mapped yet
    before = rows(LocalView(root))
    archive(root, str(target))
    joint = open_view(str(root), str(target))
    assert joint.offsets(QUEUE).start == 0
    force(store)
    assert rows(joint) == before


def test_a_store_that_was_not_archived_to_the_end_of_what_is_gone_gives_what_there_is(
    store: MessageStore, root: Path, target: Path
) -> None:
    end = archive(root, str(target)).log_range.stop
    more(store, 300)
    force(store)
    joint = open_view(str(root), str(target))
    begin = store.log_files.bases()[0]
    assert log_bytes(joint, 0, end) == log_bytes(ArchivedView(str(target)), 0, end)
    assert log_bytes(joint, begin, store.state.published_to) == log_bytes(
        LocalView(root), begin, store.state.published_to
    )
    with pytest.raises(FileNotFoundError, match="retention removed it before it was archived"):
        joint.log(end, 1)
    with pytest.raises(FileNotFoundError, match="retention removed it before it was archived"):
        rows(joint)


def test_messages_are_found_by_time_in_an_archive(store: MessageStore, root: Path, target: Path) -> None:
    archive(root, str(target))
    local, archived = LocalView(root), ArchivedView(str(target))
    known = archived.offsets(QUEUE)
    for offset in (known[0], known[len(known) // 2], known[-1]):
        at = store_timestamp_of(local, QUEUE, offset, known.stop)
        assert offset_by_time(archived, QUEUE, known, at) == offset_by_time(local, QUEUE, known, at)


def test_a_view_sees_what_is_archived_later(
    store: MessageStore, root: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(root, str(target))
    archived = ArchivedView(str(target))
    known = archived.log_range()
    rows(archived)
    more(store, 200)
    report = archive(root, str(target))
    # Not at once, but when it is asked for, or after a while
    assert archived.log_range() == known
    later = known.stop, known.stop + FILE
    assert log_bytes(archived, *later) == log_bytes(LocalView(root), *later)
    assert archived.log_range() == report.log_range
    more(store, 200)
    report = archive(root, str(target))
    monkeypatch.setattr(archived_view, "_LOOK_AGAIN_S", 0.0)
    assert archived.log_range() == report.log_range
    assert rows(archived) == rows(LocalView(root), log_end=report.log_range.stop)


@pytest.mark.guarantee("G27")
@pytest.mark.parametrize("messages", [10, 300], ids=["nothing sealed yet", "some files"])
def test_what_was_archived_and_removed_a_moment_ago_is_no_gap(root: Path, target: Path, messages: int) -> None:
    # Given joint views that have just looked at the manifest
    with open_store(root, SMALL, housekeeping=False) as store:
        more(store, messages)
        archive(root, str(target))
        by_queues, by_log = open_view(str(root), str(target)), open_view(str(root), str(target))
        more(store, 300)
        before = rows(LocalView(root))
        # And then files that were archived and removed
        archive(root, str(target))
        force(store)
        assert rows(by_queues) == before
        assert by_log.log_range() == range(store.state.published_to)


def test_views_are_made_anew_in_another_process(store: MessageStore, root: Path, target: Path) -> None:
    archive(root, str(target))
    force(store)
    program = (
        "import pickle, sys; from tests.support.archived import rows; "
        "sys.stdout.buffer.write(pickle.dumps(rows(pickle.load(sys.stdin.buffer))))"
    )
    for view in (open_view(f"file://{target}"), open_view(str(root), str(target))):
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, input=pickle.dumps(view), stdout=subprocess.PIPE, cwd=TOP, check=True, timeout=60
        )
        assert pickle.loads(done.stdout) == rows(view)


def test_a_path_a_url_or_both_say_what_is_read(store: MessageStore, root: Path, target: Path) -> None:
    assert isinstance(open_view(str(root)), LocalView)
    assert isinstance(open_view(f"file://{root}"), LocalView)
    archive(root, str(target))
    assert isinstance(open_view(f"file://{target}"), ArchivedView)
    assert isinstance(open_view(str(root), f"file://{target}", {}), JointView)
    with pytest.raises(ArchiveError, match="give the URL of an archive once"):
        open_view(f"file://{target}", str(target))


def test_an_executor_elsewhere_reads_the_archive_alone(store: MessageStore, root: Path, target: Path) -> None:
    archive(root, str(target))
    elsewhere = str(root.with_name("not-on-this-host"))
    with pytest.raises(StoreUnusable):
        open_view(elsewhere, str(target))
    view = open_view(elsewhere, str(target), may_be_elsewhere=True)
    assert rows(view) == rows(ArchivedView(str(target)))


def test_the_archive_of_another_store_is_not_joined(
    store: MessageStore, root: Path, target: Path, tmp_path: Path
) -> None:
    archive(root, str(target))
    with open_store(tmp_path / "other", SMALL, housekeeping=False) as other:
        more(other)
        with pytest.raises(ArchiveMismatch, match="differ in commitlog/"):
            open_view(str(other.root), str(target))


def test_ranges_grow_while_they_follow_each_other_and_are_not_fetched_twice(
    store: MessageStore, root: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    read = Object.read

    def counted(self: Object, position: int, size: int) -> bytes:
        asked.append(size)
        return read(self, position, size)

    archive(root, str(target))
    archived = ArchivedView(str(target))
    monkeypatch.setattr(archived_view, "_SMALLEST_RANGE", 512)
    monkeypatch.setattr(archived_view, "_LARGEST_RANGE", 8_192)
    view = ArchivedView(str(target))
    monkeypatch.setattr(Object, "read", counted)
    content = log_bytes(view, 0, FILE, step=100)
    assert asked[:4] == [512, 2_048, 8_192, 8_192]
    assert len(asked) < 10
    assert content == log_bytes(archived, 0, FILE)
    # And a look here and there takes little
    asked.clear()
    for at in (3 * FILE, FILE + 20_000, 2 * FILE):
        view.log(at, 100)
    assert asked == [512] * 3


def test_a_file_that_is_not_as_the_manifest_says_is_refused_by_name(
    store: MessageStore, root: Path, target: Path
) -> None:
    archive(root, str(target))
    known = ArchivedView(str(target)).offsets(QUEUE)
    last = known[-1] - known[-1] % 64
    overwrite(target / queue_file_name(QUEUE, last), (known[-1] - last) * 20, bytes(20))
    with pytest.raises(ArchiveCorrupt, match=r"has fewer than the \d+ entries"):
        ArchivedView(str(target)).entries(QUEUE, last, known.stop)
    first = target / "commitlog" / f"{0:020d}"
    with first.open("r+b") as file:
        file.truncate(FILE - 1)
    with pytest.raises(ArchiveCorrupt, match=f"has {FILE - 1} bytes instead of {FILE}"):
        ArchivedView(str(target)).log(0, 100)
    first.unlink()
    with pytest.raises(ArchiveCorrupt, match=r"is missing, and manifest\.json names it"):
        ArchivedView(str(target)).log(0, 100)
