"""The archive of sealed files: each is uploaded once, what the manifest names is there, and what is refused."""

from __future__ import annotations

import os
import pickle
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.archive.archiver import archive
from rmqclient.archive.view import ArchivedView, open_view
from rmqclient.errors import (
    ArchiveBusy,
    ArchiveCorrupt,
    ArchiveError,
    ArchiveMismatch,
    NotArchived,
    QueueError,
    StoreUnusable,
)
from rmqclient.store import MessageStore, open_store
from rmqclient.store.inspect.reading import open_reader
from rmqclient.store.inspect.verify import verify
from rmqclient.store.inspect.view import LocalView
from tests.support.archived import log_bytes, more, rows, rows_of
from tests.support.oracle import reference
from tests.support.written import (
    COPIES,
    SMALL,
    appending,
    copy_of_files,
    fill,
    overwrite,
    run,
    state_of_files,
    written_store,
)

GOLDEN = Path(__file__).parents[2] / "compat" / "golden"
FILE = SMALL.commit_log_file_bytes


# --- what is uploaded -----------------------------------------------------------------------------


@pytest.mark.guarantee("G27")
def test_what_is_sealed_is_uploaded_once_and_then_only_what_is_new(
    store: MessageStore, root: Path, target: Path
) -> None:
    first = archive(root, str(target))
    assert first.log_range == range(store.log_files.bases()[-1])
    assert first.log_files == len(first.log_range) // FILE > 3
    assert first.queue_files > 1
    assert first.lost == ()
    before = state_of_files(target)

    again = archive(root, str(target))
    assert (again.log_files, again.queue_files, again.renewed_files, again.uploaded_bytes) == (0, 0, 0, 0)
    assert again.log_range == first.log_range
    assert {path for path, state in state_of_files(target).items() if before[path] != state} == set()

    more(store, 100)
    later = archive(root, str(target))
    assert later.log_range == range(store.log_files.bases()[-1])
    assert later.log_files == (later.log_range.stop - first.log_range.stop) // FILE > 0
    changed = {path for path, state in state_of_files(target).items() if before.get(path) != state and "0000" in path}
    assert len(changed) == later.log_files + later.queue_files + later.renewed_files
    assert not any(path in before for path in changed if "/commitlog/" in path)


@pytest.mark.guarantee("G27")
def test_the_archive_gives_each_message_byte_for_byte(store: MessageStore, root: Path, target: Path) -> None:
    for _ in range(3):
        report = archive(root, str(target))
        local, archived = LocalView(root), ArchivedView(str(target))
        assert archived.queues() == local.queues()
        assert rows(archived) == rows(local, log_end=report.log_range.stop) != []
        assert log_bytes(archived, 0, report.log_range.stop) == log_bytes(local, 0, report.log_range.stop)
        more(store, 150)


def test_the_store_is_left_as_it_was(root: Path, target: Path) -> None:
    written_store(root)
    before = state_of_files(root)
    assert archive(root, str(target)).log_files > 1
    assert state_of_files(root) == before


@pytest.mark.guarantee("G27")
def test_a_plain_copy_of_an_archive_is_a_store(store: MessageStore, root: Path, target: Path, tmp_path: Path) -> None:
    archive(root, str(target))
    more(store, 40)
    end = archive(root, str(target)).log_range.stop
    copy = Path(shutil.copytree(target, tmp_path / "copy"))
    # As it stands
    assert run("verify", copy).returncode == 0
    assert reference.check_store(copy) == []
    assert rows(LocalView(copy)) == rows(LocalView(root), log_end=end)
    # And opened, which makes the rest of its files
    with open_store(copy, housekeeping=False) as again:
        assert {queue: again.topics.max_offset(queue) for queue in again.topics.all_queues()} == {
            queue: ArchivedView(str(target)).offsets(queue).stop for queue in LocalView(copy).queues()
        }
        more(again, 40)
    assert verify(copy) == []
    assert rows(LocalView(copy), log_end=end) == rows(LocalView(root), log_end=end)


@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_of_a_store_is_archived_as_far_as_its_log_goes_on(root: Path, target: Path, copy: str) -> None:
    written_store(root)
    copied = COPIES[copy](root, root.with_name("copied"))
    assert archive(copied, str(target)).log_range == range(open_reader(root).log_files.bases()[-1])
    assert rows(ArchivedView(str(target))) == rows(LocalView(root), log_end=archive(root, str(target)).log_range.stop)


@pytest.mark.parametrize(
    ("name", "sealed"), [("store-4.9.8-clean", 2), ("broker-4.9.7-killed", 1), ("broker-4.9.7-stopped", 1)]
)
def test_the_store_of_a_broker_is_archived(tmp_path: Path, target: Path, name: str, sealed: int) -> None:
    with tarfile.open(GOLDEN / f"{name}.tgz") as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    (broker,) = (tmp_path / "unpacked").iterdir()
    before = state_of_files(broker)
    report = archive(broker, str(target))
    assert state_of_files(broker) == before
    assert report.log_files == sealed  # its newest file may still be written, whatever was made ahead of it
    archived = rows(ArchivedView(str(target)))
    assert archived == rows(LocalView(broker), log_end=report.log_range.stop)
    assert len(archived) == sum(at < report.log_range.stop for at, _ in reference.read_commit_log(broker)) > 10


def test_a_file_made_ahead_seals_nothing(store: MessageStore, root: Path, target: Path, tmp_path: Path) -> None:
    # Given a store whose runtime file is not believed, and the next two files made by a broker ahead of its log
    store.close()
    copy = copy_of_files(root, tmp_path / "copy")
    last = open_reader(root).log_files.bases()[-1]
    for ahead in (last + FILE, last + 2 * FILE):
        (copy / "commitlog" / f"{ahead:020d}").write_bytes(bytes(FILE))
    assert archive(copy, str(target)).log_range.stop == last


def test_what_is_not_durable_is_not_archived(root: Path, target: Path) -> None:
    with open_store(root, SMALL, housekeeping=False) as store:
        more(store, 10)
        fill(store, 200)
        flushed = store.state.flushed_to
        assert flushed < FILE < store.state.published_to
        assert archive(root, str(target)).log_files == 0
        store.flusher.flush_thorough()
        assert archive(root, str(target)).log_files > 0


@pytest.mark.guarantee("G27")
def test_a_store_that_another_process_appends_to_is_archived_and_read(root: Path, target: Path) -> None:
    with open_store(root, SMALL, housekeeping=False) as store:
        fill(store, 10)
    ends = []
    with appending(root):
        for _ in range(5):
            ends.append(archive(root, str(target)).log_range.stop)
            joint = open_view(str(root), str(target))
            for queue in joint.queues():
                known = joint.offsets(queue)
                assert [offset for _, offset, _, _ in rows_of(joint, queue, known)] == list(known)
    assert sorted(ends) == ends
    assert rows(ArchivedView(str(target))) == rows(LocalView(root), log_end=ends[-1])


# --- what is refused ------------------------------------------------------------------------------


def test_the_archive_of_another_store_is_left_alone(
    store: MessageStore, root: Path, target: Path, tmp_path: Path
) -> None:
    archive(root, str(target))
    before = state_of_files(target)
    with open_store(tmp_path / "other", SMALL, housekeeping=False) as other:
        more(other)
        with pytest.raises(ArchiveMismatch, match=r"has another commitlog/.*another store's"):
            archive(other.root, str(target))
    with open_store(tmp_path / "smaller", replace(SMALL, commit_log_file_bytes=40_960), housekeeping=False) as smaller:
        more(smaller)
        with pytest.raises(ArchiveMismatch, match="files of 36864 bytes"):
            archive(smaller.root, str(target))
    assert state_of_files(target) == before


def test_a_store_that_lost_in_a_power_cut_what_is_archived_is_not_taken_for_the_same(
    root: Path, target: Path, tmp_path: Path
) -> None:
    # Given a broker's store of which the end of the newest archived file did not reach the disk, and was written anew
    copy = COPIES["as of a broker"](written_store(root), tmp_path / "copy")
    newest = archive(copy, str(target)).log_range.stop - FILE
    assert archive(copy, str(target)).uploaded_bytes == 0
    overwrite(copy / "commitlog" / f"{newest:020d}", FILE - 5_000, b"other bytes")
    before = state_of_files(target)
    with pytest.raises(ArchiveMismatch, match=f"has another commitlog/{newest:020d}: .* has lost data"):
        archive(copy, str(target))
    assert state_of_files(target) == before


def test_a_store_is_no_place_for_an_archive(store: MessageStore, root: Path, tmp_path: Path) -> None:
    for place in (root, root / "archive", f"file://{root}/commitlog"):
        with pytest.raises(ArchiveMismatch, match="lies in the store"):
            archive(root, str(place))
    other = tmp_path / "other"
    with open_store(other, SMALL, housekeeping=False) as opened:
        more(opened, 10)
    before = state_of_files(other)  # an open store prepares pages ahead, which changes the times of its files
    with pytest.raises(ArchiveMismatch, match="has a commitlog, so it is not an archive but perhaps a store"):
        archive(root, str(other))
    assert state_of_files(other) == before


def test_an_archive_that_has_become_a_store_is_no_archive_any_more(
    store: MessageStore, root: Path, target: Path
) -> None:
    archive(root, str(target))
    with open_store(target, housekeeping=False) as opened:
        more(opened, 10)
    more(store, 100)
    with pytest.raises(ArchiveMismatch, match="has a lock"):
        archive(root, str(target))


def test_without_a_store_there_is_no_archive(tmp_path: Path, target: Path) -> None:
    with pytest.raises(StoreUnusable):
        archive(tmp_path / "nothing", str(target))
    with pytest.raises(ArchiveError, match=r"there is no manifest.json"):
        ArchivedView(str(target))
    assert not target.exists()


def test_a_young_store_has_an_archive_with_nothing_in_it(root: Path, target: Path) -> None:
    with open_store(root, SMALL, housekeeping=False) as store:
        more(store, 10)
        assert archive(root, str(target)).log_range == range(0)
        assert rows(ArchivedView(str(target))) == []
        assert rows(open_view(str(root), str(target))) == rows(LocalView(root)) != []
        more(store)
        report = archive(root, str(target))
        assert report.log_files > 1
        assert rows(ArchivedView(str(target))) == rows(LocalView(root), log_end=report.log_range.stop)


@pytest.mark.parametrize("kind", [ArchiveError, ArchiveBusy, ArchiveMismatch, ArchiveCorrupt, NotArchived])
def test_an_error_survives_pickling(kind: type[QueueError]) -> None:
    again = pickle.loads(pickle.dumps(kind("what")))
    assert type(again) is kind
    assert str(again) == "what"
    assert os.strerror(2) not in str(again)
