"""The manifest of an archive: what breaks its format, or names what is no name, is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient.archive import manifest as archive_manifest
from rmqclient.archive.view import ArchivedView
from rmqclient.errors import ArchiveCorrupt, ArchiveMismatch

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
