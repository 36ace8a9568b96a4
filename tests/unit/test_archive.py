"""The archive of sealed files: each is uploaded once, whoever is killed, and what the manifest names is there."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from rmqclient import archive as archiving
from rmqclient import archive_manifest
from rmqclient.archive import archive
from rmqclient.archive_storage import Storage
from rmqclient.archived_view import ArchivedView
from store import MessageStore, open_store
from store.errors import (
    ArchiveBusy,
    ArchiveCorrupt,
    ArchiveError,
    ArchiveMismatch,
    NotArchived,
    QueueError,
    StoreUnusable,
)
from store.reading import open_reader
from store.verify import verify
from store.view import LocalView
from tests.support import reference
from tests.support.archived import at_step, files_in, force, killed_at, log_bytes, more, rows
from tests.support.written import COPIES, SMALL, copy_of_files, fill, run, state_of_files, written_store

GOLDEN = Path(__file__).parents[1] / "compat" / "golden"
FILE = SMALL.commit_log_file_bytes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    with open_store(root, SMALL, housekeeping=False) as opened:
        more(opened)
        yield opened


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


@pytest.mark.parametrize("name", ["store-4.9.8-clean", "broker-4.9.7-killed", "broker-4.9.7-stopped"])
def test_the_store_of_a_broker_is_archived(tmp_path: Path, target: Path, name: str) -> None:
    with tarfile.open(GOLDEN / f"{name}.tgz") as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    (broker,) = (tmp_path / "unpacked").iterdir()
    before = state_of_files(broker)
    report = archive(broker, str(target))
    local = LocalView(broker)
    sealed = [offset for offset, _ in reference.read_commit_log(broker) if offset < report.log_range.stop]
    assert report.log_range.stop == local.log_file_bytes * report.log_files
    if report.log_files:  # the others have one file, and that may still be written
        assert len(rows(ArchivedView(str(target)))) == len(rows(local, log_end=report.log_range.stop)) > 0
        assert rows(ArchivedView(str(target))) == rows(local, log_end=report.log_range.stop)
        assert len(sealed) >= len(rows(ArchivedView(str(target))))
    assert state_of_files(broker) == before


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
        store.flush_thorough()
        assert archive(root, str(target)).log_files > 0


# --- kills and others -----------------------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.guarantee("G27")
@pytest.mark.parametrize("is_begun", [False, True], ids=["the first time", "again"])
def test_an_archiver_killed_at_any_step_changes_nothing_for_readers_and_the_next_one_completes_it(
    store: MessageStore, root: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_begun: bool
) -> None:
    # Given an archive, more in the store, and what the archive is without a kill
    monkeypatch.setattr(archiving, "_READ_BYTES", 12_288)
    for flush in ("fsync", "fdatasync"):  # a kill loses nothing that the page cache has
        monkeypatch.setattr(os, flush, lambda _: None)
    begun = tmp_path / "begun"
    begun.mkdir()
    before = []
    if is_begun:
        before = rows(LocalView(root), log_end=archive(root, str(begun)).log_range.stop)
        more(store, 200)
    report = archive(root, str(shutil.copytree(begun, target)))
    after = rows(LocalView(root), log_end=report.log_range.stop)
    expected = files_in(target)
    assert report.log_files > 2
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
    monkeypatch.setattr(archiving, "_READ_BYTES", 4_096)
    before = rows(LocalView(root), log_end=store.log_files.bases()[-1])
    sealed = store.log_files.bases()[:-1]
    removed: list[int] = []

    def progress(upload: archiving.Upload) -> None:
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


def test_a_store_is_no_place_for_an_archive(store: MessageStore, root: Path, tmp_path: Path) -> None:
    for place in (root, root / "archive", f"file://{root}/commitlog"):
        with pytest.raises(ArchiveMismatch, match="lies in the store"):
            archive(root, str(place))
    with open_store(tmp_path / "other", SMALL, housekeeping=False) as other:
        more(other, 10)
        before = state_of_files(other.root)
        with pytest.raises(ArchiveMismatch, match="has a commitlog, so it is no archive but perhaps a store"):
            archive(root, str(other.root))
        assert state_of_files(other.root) == before


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


MANIFEST = (
    b'{"format":"rmq-archive","version":1,"sequence":1,"commit_log_file_bytes":4096,"consume_queue_file_entries":64,'
    b'"commit_log":{"begin":0,"end":4096,"files":[{"file":"00000000000000000000","head_crc32":1,"crc32":2}],"pending":[]},'
    b'"queues":[{"topic":"orders","queue_id":0,"min_offset":0,"max_offset":5,"files":'
    b'[{"file":"00000000000000000000","entries":5,"crc32":3}]}]}'
)
BAD: dict[str, tuple[bytes, bytes]] = {
    "a path for a topic": (b'"orders"', b'"../../etc"'),
    "a path for a file": (b'"file":"00000000000000000000"', b'"file":"../../../../../passwd"'),
    "a long topic": (b'"orders"', b'"' + b"o" * 128 + b'"'),
    "an empty topic": (b'"orders"', b'""'),
    "a negative queue id": (b'"queue_id":0', b'"queue_id":-1'),
    "a file between two places": (b'"file":"00000000000000000000"', b'"file":"00000000000000000007"'),
    "a file behind all offsets": (b'"file":"00000000000000000000"', b'"file":"99999999999999999999"'),
    "more entries than a file has": (b'"entries":5', b'"entries":65'),
    "offsets behind the entries": (b'"max_offset":5', b'"max_offset":6'),
    "offsets that are no range": (b'"min_offset":0', b'"min_offset":6'),
    "an end that is none": (b'"end":4096', b'"end":8192'),
    "a huge file": (b'"commit_log_file_bytes":4096', b'"commit_log_file_bytes":4294967296'),
    "no file size": (b'"commit_log_file_bytes":4096,', b""),
    "another format": (b"rmq-archive", b"zip"),
    "no JSON": (b"{", b"<"),
    "half of it": (MANIFEST[200:], b""),
}


@pytest.mark.parametrize("case", BAD)
def test_a_manifest_that_breaks_its_format_is_refused(target: Path, case: str) -> None:
    target.mkdir()
    (target / "manifest.json").write_bytes(MANIFEST)
    assert ArchivedView(str(target)).log_range() == range(4096)
    old, new = BAD[case]
    assert old in MANIFEST
    (target / "manifest.json").write_bytes(MANIFEST.replace(old, new))
    with pytest.raises(ArchiveCorrupt, match=r"manifest\.json"):
        ArchivedView(str(target))


def test_a_manifest_of_a_later_version_or_without_end_is_refused(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target.mkdir()
    (target / "manifest.json").write_bytes(MANIFEST.replace(b'"version":1', b'"version":2'))
    with pytest.raises(ArchiveMismatch, match="version 2"):
        ArchivedView(str(target))
    with (target / "manifest.json").open("wb") as file:
        file.truncate(archive_manifest.MOST_BYTES + 1)
    with pytest.raises(ArchiveCorrupt, match=f"at most {archive_manifest.MOST_BYTES}"):
        ArchivedView(str(target))


# --- URLs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("s3://AKIA:hush-hush@bucket/x?colour=red", {}, "option 'colour' is none of S3's: access_key"),
        ("s3://bucket/x", {"secret_key": "hush-hush", "anonymous": "perhaps"}, "is true or false, not 'perhaps'"),
        ("s3://AKIA:hush-hush@/x", {}, "names no bucket"),
        ("nosuch://AKIA:hush-hush@host/x?token=hush-hush", {}, "nosuch"),
        ("nosuch://host/x", {"password": "hush-hush"}, "nosuch"),
        ("s3://AKIA:hush-hush@[::1/x", {}, "cannot be used"),
    ],
)
def test_a_url_or_an_option_that_makes_no_sense_is_refused_without_its_secrets(
    url: str, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(ArchiveError) as raised:
        Storage(url, options)
    assert reason in str(raised.value)
    assert "hush" not in str(raised.value)
    assert "AKIA" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_without_pyarrow_one_line_says_what_to_install(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ArchiveError, match=r"^archives need pyarrow: pip install 'rmqclient\[archive\]'$"):
        Storage(str(target))


@pytest.mark.parametrize("scheme", ["memory", "local"])
def test_a_scheme_that_pyarrow_does_not_know_is_left_to_fsspec(
    store: MessageStore, root: Path, target: Path, scheme: str
) -> None:
    pytest.importorskip("fsspec")
    url = f"{scheme}://{target}"
    for _ in range(2):
        report = archive(root, url)
        assert rows(ArchivedView(url)) == rows(LocalView(root), log_end=report.log_range.stop)
        more(store, 100)


def test_a_directory_that_cannot_be_written_is_an_error_with_its_name(root: Path, target: Path) -> None:
    written_store(root)
    target.write_text("a file")
    with pytest.raises(ArchiveError, match=f"archive {target}: "):
        archive(root, str(target))


@pytest.mark.parametrize("kind", [ArchiveError, ArchiveBusy, ArchiveMismatch, ArchiveCorrupt, NotArchived])
def test_an_error_survives_pickling(kind: type[QueueError]) -> None:
    again = pickle.loads(pickle.dumps(kind("what")))
    assert type(again) is kind
    assert str(again) == "what"
    assert os.strerror(2) not in str(again)
