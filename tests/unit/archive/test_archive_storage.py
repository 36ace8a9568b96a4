"""Where an archive can be: URLs, options, and what is said when they make no sense."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rmqclient.archive.archiver import archive
from rmqclient.archive.storage import Storage
from rmqclient.archive.view import ArchivedView
from rmqclient.errors import ArchiveError
from rmqclient.store import MessageStore
from rmqclient.store.inspect.view import LocalView
from tests.support.archived import more, rows
from tests.support.host.small_disks import small_disk_or_skip
from tests.support.written import written_store


@pytest.mark.parametrize(
    ("url", "options", "reason"),
    [
        ("s3://AKIA:hush-hush@bucket/x?colour=red", {}, "option 'colour' is not one of S3's: access_key"),
        ("s3://bucket/x", {"secret_key": "hush-hush", "anonymous": "perhaps"}, "must be true or false, not 'perhaps'"),
        ("s3://AKIA:hush-hush@/x", {}, "names no bucket"),
        ("nosuch://AKIA:hush-hush@host/x?token=hush-hush", {}, "nosuch"),
        ("nosuch://host/x", {"password": "hush-hush"}, "nosuch"),
        ("file://AKIA:hush-hush@host/x", {}, "cannot be used"),
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


def test_what_a_full_disk_refused_takes_no_room_of_it(tmp_path: Path) -> None:
    # Given an archive with an object, on a disk of a megabyte
    with small_disk_or_skip(tmp_path) as disk:
        storage = Storage(str(disk / "archive"))
        storage.write("one", [b"1"])
        free = os.statvfs(disk).f_bavail

        # When another one does not fit
        with pytest.raises(ArchiveError, match="No space left"):
            storage.write("two", [bytes(1 << 18)] * 5)

        # Then nothing of it is left, and one that fits is written
        assert os.statvfs(disk).f_bavail == free
        assert [path.name for path in disk.rglob("*") if path.is_file()] == ["one"]
        storage.write("three", [bytes(1 << 18)] * 2)
        assert storage.size("three") == 1 << 19
