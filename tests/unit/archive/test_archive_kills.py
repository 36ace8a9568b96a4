"""The archive beside kills, other archivers, retention and power cuts: what it has stays right, and goes on."""

from __future__ import annotations

import os
import random
import shutil
from contextlib import nullcontext, suppress
from itertools import count
from pathlib import Path

import pytest

from rmqclient.archive import manifest as archive_manifest
from rmqclient.archive import uploads as archive_uploads
from rmqclient.archive.archiver import archive
from rmqclient.archive.storage import Storage
from rmqclient.archive.uploads import Upload
from rmqclient.archive.view import ArchivedView
from rmqclient.errors import (
    ArchiveBusy,
    ArchiveError,
    NotArchived,
    StoreCorrupt,
)
from rmqclient.store import MessageQueue, MessageStore, open_store
from rmqclient.store.inspect.reading import open_reader
from rmqclient.store.inspect.verify import verify
from rmqclient.store.inspect.view import LocalView
from tests.support.archived import at_step, files_in, force, killed_at, log_bytes, more, rows, rows_of
from tests.support.written import (
    COPIES,
    ORDERS,
    SMALL,
    copy_of_files,
    overwrite,
    written_store,
)
from tests.torture.wholes import archives

FILE = SMALL.commit_log_file_bytes
QUEUE = MessageQueue(ORDERS, 0)


class Killed(BaseException):
    """What ends an archiver in the middle of a run."""


@pytest.mark.guarantee("G27")
@pytest.mark.parametrize("is_whole", [False, True], ids=["before a log file", "behind a log file"])
def test_what_a_killed_archiver_left_and_nobody_can_complete_is_in_no_copy(
    root: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    def die(upload: Upload) -> None:
        if upload.name.startswith("commitlog") and (upload.done == upload.size) is is_whole:
            raise Killed

    # Given an archiver that dies when its consume queue files are there, and retention that comes before the next one
    with open_store(root, SMALL, housekeeping=False) as store:
        more(store)
        with pytest.raises(Killed):
            archive(root, str(target), progress=die)
        left = {name for name in files_in(target) if not name.startswith(".uploading")}
        force(store)
        more(store)
        # When the next one may not remove what was left
        with monkeypatch.context() as refusing:
            refusing.setattr(Storage, "remove", refuse)
            assert archive(root, str(target)).log_files
        assert left - manifest_of(target).objects() <= files_in(target).keys()
        # Then one that may does it
        archive(root, str(target))
    assert left - manifest_of(target).objects()
    assert files_in(target).keys() == manifest_of(target).objects()
    assert not manifest_of(target).commit_log.pending
    assert verify(Path(shutil.copytree(target, tmp_path / "copy"))) == []


@pytest.mark.guarantee("G27")
@pytest.mark.parametrize("is_killed", [False, True], ids=["during its upload", "after a kill"])
def test_entries_whose_messages_retention_removed_before_they_were_archived_are_in_no_copy(
    store: MessageStore, root: Path, target: Path, tmp_path: Path, is_killed: bool
) -> None:
    # Given an archive, and retention that comes when entries for more messages have been uploaded
    archived = archive(root, str(target)).log_range
    before = files_in(target)
    more(store)

    def lose_the_log(upload: Upload) -> None:
        if upload.name != archive_manifest.NAME and upload.done == upload.size:
            force(store)
            if is_killed:
                raise Killed

    with pytest.raises(Killed) if is_killed else nullcontext():
        archive(root, str(target), progress=lose_the_log)
    assert is_killed == any(files_in(target)[name] != content for name, content in before.items())
    # Then the next run, which finds nothing to archive, leaves only what counts
    assert archive(root, str(target)).log_range == archived
    assert files_in(target) == before
    assert not manifest_of(target).commit_log.pending
    assert verify(Path(shutil.copytree(target, tmp_path / "copy"))) == []


def refuse(_: Storage, name: str) -> None:
    raise ArchiveError(f"{name}: access denied")


def manifest_of(target: Path) -> archive_manifest.Manifest:
    found = archive_manifest.read(Storage(str(target)))
    assert found is not None
    return found


@pytest.mark.crash
@pytest.mark.guarantee("G27")
@pytest.mark.parametrize("is_begun", [False, True], ids=["the first time", "again"])
def test_an_archiver_killed_at_any_step_changes_nothing_for_readers_and_the_next_one_completes_it(
    root: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_begun: bool
) -> None:
    # Given an archive, more in the store, and what the archive is without a kill
    monkeypatch.setattr(archive_uploads, "READ_BYTES", 12_288)
    for flush in ("fsync", "fdatasync"):  # a kill loses nothing that the page cache has
        monkeypatch.setattr(os, flush, lambda _: None)
    begun = tmp_path / "begun"
    begun.mkdir()
    before = []
    if is_begun:
        written_store(root)
        before = rows(LocalView(root), log_end=archive(root, str(begun)).log_range.stop)
    with open_store(root, SMALL, housekeeping=False) as store:
        more(store, 140)
    report = archive(root, str(shutil.copytree(begun, target)))
    after = rows(LocalView(root), log_end=report.log_range.stop)
    expected = files_in(target)
    assert report.log_files >= 2
    # For every step at which an archiver is killed
    for step in count(1):
        killed = Path(shutil.copytree(begun, tmp_path / f"killed-{step}"))
        if not killed_at(step, root, str(killed)):
            break
        # Then readers find what they found before, and all from the writing of the manifest on
        if (killed / archive_manifest.NAME).exists():
            assert rows(ArchivedView(str(killed))) in (before, after)
        # And the next one uploads what is missing, and nothing again
        there = {name: (killed / name).stat().st_ino for name in files_in(killed) if name.startswith("commitlog")}
        again = archive(root, str(killed))
        assert files_in(killed) == expected
        assert {name: (killed / name).stat().st_ino for name in there} == there
        assert again.log_files == sum(name.startswith("commitlog") for name in expected) - len(there)
        assert rows(ArchivedView(str(killed))) == after
        assert archive(root, str(killed)).uploaded_bytes == 0
        shutil.rmtree(killed)
    assert step > 3 * report.log_files


@pytest.mark.crash
@pytest.mark.guarantee("G27")
def test_no_sequence_of_kills_cleanings_and_recoveries_makes_store_and_archive_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for flush in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, flush, lambda _: None)
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    result = archives.run(seed, 25, tmp_path)
    assert result.problems == []
    assert result.figures["messages"]


@pytest.mark.guarantee("G27")
def test_two_archivers_of_a_store_do_not_work_at_once(store: MessageStore, root: Path, target: Path) -> None:
    refused: list[str] = []

    def another() -> None:
        with pytest.raises(ArchiveBusy, match="another process archives") as error:
            archive(root, str(target))
        refused.append(str(error.value))
        assert error.value.retryable

    report = archive(root, str(target), progress=at_step(5, another))
    assert len(refused) == 1
    assert rows(ArchivedView(str(target))) == rows(LocalView(root), log_end=report.log_range.stop)


@pytest.mark.guarantee("G27")
@pytest.mark.parametrize("step", [1, 2, 3, 9, 14])
def test_an_archiver_of_a_copy_on_another_host_does_no_harm(
    root: Path, target: Path, tmp_path: Path, step: int
) -> None:
    # Given two hosts that have the same store, and one archiving in the middle of the other's work
    written_store(root)
    copy = copy_of_files(root, tmp_path / "copy")
    with suppress(ArchiveError):  # of the one that was overtaken
        archive(root, str(target), progress=at_step(step, lambda: archive(copy, str(target))))
    after = rows(LocalView(root), log_end=open_reader(root).log_files.bases()[-1])
    assert rows(ArchivedView(str(target))) == after
    assert archive(root, str(target)).uploaded_bytes == 0


@pytest.mark.guarantee("G27")
def test_files_that_retention_removes_during_an_upload_are_archived_all_the_same(
    store: MessageStore, root: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given retention that removes all it may while the third file is being uploaded
    monkeypatch.setattr(archive_uploads, "READ_BYTES", 4_096)
    before = rows(LocalView(root), log_end=store.log_files.bases()[-1])
    sealed = store.log_files.bases()[:-1]
    removed: list[int] = []

    def progress(upload: Upload) -> None:
        if upload.name == archive_manifest.log_file_name(2 * FILE) and upload.done == 8_192:
            force(store)
            removed.extend(base for base in sealed if base not in store.log_files.bases())

    report = archive(root, str(target), progress=progress)
    # Then all of them are whole, as they were open, and each message has its entry
    assert removed == sealed
    assert rows(ArchivedView(str(target))) == before
    assert (report.log_range.stop, report.lost) == (sealed[-1] + FILE, ())


@pytest.mark.guarantee("G27")
@pytest.mark.parametrize("step", range(1, 10))
def test_an_archive_begins_where_retention_left_off_when_it_was_faster(
    store: MessageStore, root: Path, target: Path, step: int
) -> None:
    # Given retention that removes some files before any is being uploaded, while their entries are
    before = rows(LocalView(root), log_end=store.log_files.bases()[-1])
    report = archive(root, str(target), progress=at_step(step, lambda: force(store, keep=3)))
    begin = store.log_files.bases()[0]
    assert begin > 0
    # Then what is archived is there with its entries, from the oldest file on
    assert report.log_range == range(begin, store.log_files.bases()[-1])
    kept = [row for row in before if int.from_bytes(row[2][:8], "big") >= begin]
    assert rows(ArchivedView(str(target))) == kept
    assert rows(LocalView(root), log_end=report.log_range.stop) == kept
    assert archive(root, str(target)).uploaded_bytes == 0


def test_what_was_lost_is_reported_once_and_reading_it_is_refused_by_name(
    store: MessageStore, root: Path, target: Path
) -> None:
    # Given an archive, and more files than one, removed before the next run
    first = archive(root, str(target))
    end = first.log_range.stop
    more(store, 300)
    force(store, keep=3)
    begin = store.log_files.bases()[0]
    assert begin > end
    report = archive(root, str(target))
    assert report.lost == (range(end, begin),)
    assert report.log_range == range(store.log_files.bases()[-1])
    assert archive(root, str(target)).lost == ()
    # Then what is there can be read
    archived = ArchivedView(str(target))
    assert log_bytes(archived, begin, report.log_range.stop) == log_bytes(LocalView(root), begin, report.log_range.stop)
    # And the rest says so
    with pytest.raises(NotArchived, match=f"no byte {end} of the log: retention removed it"):
        archived.log(end, 1)
    with pytest.raises(FileNotFoundError):
        rows(archived)


def test_entries_that_were_written_again_do_not_replace_those_that_are_archived(
    store: MessageStore, root: Path, target: Path
) -> None:
    # Given consume queues that recovery has made from what retention left of the log, with blank entries before it
    archive(root, str(target))
    before = rows(ArchivedView(str(target)))
    force(store)
    store.close()
    shutil.rmtree(root / "consumequeue")
    with open_store(root, housekeeping=False) as again:
        more(again, 150)
        after = rows(LocalView(root))
        # Then the next run keeps the entries of what is gone
        report = archive(root, str(target))
        assert report.log_files > 0
        assert report.lost == ()
    every = {row[:2]: row for row in [*before, *after] if int.from_bytes(row[2][:8], "big") < report.log_range.stop}
    assert {row[:2]: row for row in rows(ArchivedView(str(target)))} == every


def test_blank_entries_for_what_was_lost_are_not_given_for_messages(
    store: MessageStore, root: Path, target: Path
) -> None:
    # Given messages removed before they were archived, and entries written again since
    end = archive(root, str(target)).log_range.stop
    more(store, 200)
    force(store, keep=3)
    begin, low = store.log_files.bases()[0], store.topics.min_offset(QUEUE)
    store.close()
    shutil.rmtree(root / "consumequeue")
    with open_store(root, housekeeping=False) as again:
        more(again, 10)
        assert archive(root, str(target)).lost == (range(end, begin),)
    archived = ArchivedView(str(target))
    known = range(low, archived.offsets(QUEUE).stop)
    assert [offset for _, offset, _, _ in rows_of(archived, QUEUE, known)] == list(known) != []
    with pytest.raises(NotArchived, match=f"no entry {low - 1} of queue 0 of orders"):
        archived.entries(QUEUE, low - 1, low)


def test_a_store_that_was_not_recovered_after_a_power_cut_is_not_archived_with_holes(
    root: Path, target: Path, tmp_path: Path
) -> None:
    # Given a store as of a broker, of which one entry did not reach the disk
    copy = COPIES["as of a broker"](written_store(root), tmp_path / "copy")
    overwrite(copy / "consumequeue" / "orders" / "0" / f"{0:020d}", 5 * 20, bytes(20))
    with pytest.raises(StoreCorrupt, match="entry 5 is missing"):
        archive(copy, str(target))
    assert rows(ArchivedView(str(target))) == []
    with open_store(copy, housekeeping=False):
        pass
    report = archive(copy, str(target))
    assert rows(ArchivedView(str(target))) == rows(LocalView(copy), log_end=report.log_range.stop) != []
