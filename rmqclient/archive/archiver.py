"""Archiver: uploads the sealed files of a store to shared or object storage, each one once.

The store may be closed, open in other processes, or a RocketMQ broker's. It is only read. The manifest of an archive
(rmqclient/archive/manifest.py) says what the archive holds. It is written last; objects it does not name do not count.

A commit log file is sealed when the log continues in the next one. In a store whose runtime file can be trusted, the
file must end at or below ``published_to`` and ``flushed_to``; in any other store a later file must begin with a record.
A consume queue file is sealed when it is full of entries for archived records. The last file of a queue is uploaded
with the entries for archived records, filled with zeros, and uploaded anew when there are more. So a plain copy of an
archive is a store, with an entry for each archived message.

An archive grows in parts of a gigabyte of the log or more. The steps of one part:

===============================  =================================================================================
step                             what a kill after it leaves
===============================  =================================================================================
manifest with ``pending`` files  the archive as it was, with the names of objects that may exist and do not count yet
consume queue files              entries that do not count yet
commit log files                 files that the next run finds and compares instead of uploading them again
manifest without ``pending``     the larger archive
===============================  =================================================================================

Retention may remove a file during its upload, or after a killed run has begun its upload. At the end of a run, objects
that the manifest does not name are removed, and consume queue files are cut to the entries that count: the rest would
be in a plain copy. Without the permission to remove objects, the archiver logs a warning and continues.

One archiver at a time works for a store, under an advisory lock on the store's directory. An archiver on another host,
for a copy of the store, is noticed by the sequence number of the manifest.
"""

from __future__ import annotations

import fcntl
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rmqclient.archive import manifest as archive_manifest
from rmqclient.archive import uploads as archive_uploads
from rmqclient.archive.errors import ArchiveBusy, ArchiveError, ArchiveMismatch
from rmqclient.archive.manifest import (
    HEAD_BYTES,
    LOG_DIRECTORY,
    NAME,
    QUEUE_DIRECTORY,
    LogFile,
    Manifest,
    PendingFile,
    file_name,
    log_file_name,
)
from rmqclient.archive.queues import QueueArchiver
from rmqclient.archive.storage import Storage
from rmqclient.archive.uploads import Progress, Upload, Uploads, crc_of
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.files.cold_reads import ColdReads
from rmqclient.store.inspect.reading import StoreReader, open_reader
from rmqclient.store.log import shape
from rmqclient.store.log.consume_queue import ENTRY
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_PART_BYTES = 1 << 30
_FILES_A_PART = 64
"""Upper limit. All files of a part are open during its upload and keep their blocks even if retention removes them."""
_PART_OVER_OPEN_FILES = 16
"""A part of the log is this many times as large as the unsealed consume queue files, which each part uploads anew."""


@dataclass(frozen=True, slots=True)
class Report:
    """The work of one run, and what the archive holds after it."""

    url: str
    """Without credentials."""
    log_files: int
    """Commit log files that were uploaded."""
    queue_files: int
    """Sealed consume queue files that were uploaded."""
    renewed_files: int
    """Consume queue files that are not full yet and were uploaded; an upload replaces an earlier state of the file."""
    uploaded_bytes: int
    found_files: int
    """Files uploaded by a killed run: this run compared them instead of uploading them again."""
    log_range: range
    queues: int
    lost: tuple[range, ...]
    """Commit log offsets that retention removed before this run could archive them."""


def archive(
    root: Path, url: str, options: Mapping[str, str] | None = None, *, progress: Progress = lambda _: None
) -> Report:
    """Upload the sealed files of the store in ``root`` that are not in the archive at ``url``; report the work.

    ``options`` are those of :class:`rmqclient.archive.storage.Storage`. Raises StoreUnusable without a store,
    ArchiveBusy while another process archives it, ArchiveMismatch if the URL holds another store's archive or no
    archive, ArchiveError if it cannot be reached, StoreCorrupt for a byte that cannot be read. The next run continues
    one that failed or was killed.
    """
    reader = open_reader(root)
    storage = Storage(url, options)
    _check_place(root, storage)
    with _alone(root):
        storage.remove_leftovers()
        report = _Archiver(reader, storage, progress).run()
        storage.remove_leftovers()
        return report


class _Archiver:
    """One run."""

    def __init__(self, reader: StoreReader, storage: Storage, progress: Progress) -> None:
        self._reader = reader
        self._storage = storage
        self._progress = progress
        self._log_bytes = reader.log_files.file_bytes
        self._entries_per_file = reader.consume_queues.entries_per_file
        self._manifest = self._open_manifest()
        self._left = list(self._manifest.commit_log.pending)
        """Commit log files with an incomplete upload, which may have left objects or entries that do not count."""
        self._unfinished = {file.begin for file in self._left}
        """Commit log files that a killed run may have uploaded, and with them consume queue files."""
        self._queues = {queue.queue: queue for queue in self._manifest.queues}
        self._held = ColdReads(_FILES_A_PART, any_size=True)
        self._uploads = Uploads(storage, progress)
        self._queue_archiver = QueueArchiver(reader.consume_queues, self._uploads, may_be_there=bool(self._unfinished))

    def run(self) -> Report:
        sealed = sealed_files(self._reader)
        self._check_store(sealed)
        gaps_before = self._gaps()
        end = self._manifest.commit_log.end
        todo = [base for base in sealed if base >= end]
        for part in self._parts(todo):
            self._archive_part(part)
        if self._left:
            self._remove_left()
        if not self._manifest.sequence:  # nothing is sealed yet; with a manifest, readers find an archive
            self._write_manifest()
        done, queue_files = self._uploads.done, self._queue_archiver.sealed_files
        log_files = sum(upload.name.startswith(LOG_DIRECTORY) for upload in done)
        log = self._manifest.commit_log
        return Report(
            url=self._storage.shown,
            log_files=log_files,
            queue_files=queue_files,
            renewed_files=len(done) - log_files - queue_files,
            uploaded_bytes=sum(upload.size for upload in done),
            found_files=self._uploads.found,
            log_range=range(log.begin, log.end),
            queues=len(self._queues),
            lost=tuple(range(*gap) for gap in self._gaps() if gap not in gaps_before),
        )

    def _parts(self, bases: list[int]) -> Iterator[list[int]]:
        open_bytes = len(self._reader.consume_queues.on_disk()) * self._entries_per_file * ENTRY.size
        wanted = max(_PART_BYTES, _PART_OVER_OPEN_FILES * open_bytes) // self._log_bytes
        count = min(max(1, wanted), _FILES_A_PART)
        return (bases[start : start + count] for start in range(0, len(bases), count))

    def _archive_part(self, bases: list[int]) -> None:
        pending = [PendingFile(file_name(base), head) for base in bases if (head := self._head(base)) is not None]
        if not pending:
            return
        log = self._manifest.commit_log
        log.pending = pending
        self._write_manifest()
        begin = log.files[0].begin if log.files else pending[0].begin
        end = pending[-1].begin + self._log_bytes
        queues = [
            self._queue_archiver.archive(queue, self._queues.get(queue), begin, end)
            for queue in self._reader.consume_queues.on_disk()
        ]
        # Retention removes a log file before its entries, so the entries of every file still there are uploaded.
        there = [file for file in pending if self._hold(file.begin)]
        if there and not log.files and there[0] is not pending[0]:
            queues = [self._queue_archiver.begun_at(queue, there[0].begin) for queue in queues if queue is not None]
        files = [self._archive_log_file(file) for file in there]
        if not files:
            self._left = self._left or pending
        log.pending = self._left
        if files:
            log.files = [*log.files, *files]
            log.begin, log.end = log.files[0].begin, log.files[-1].begin + self._log_bytes
            self._queues |= {queue.queue: queue for queue in queues if queue is not None}
            self._manifest.queues = [self._queues[queue] for queue in sorted(self._queues)]
        self._write_manifest()

    def _remove_left(self) -> None:
        """Remove the objects that still have no name in the manifest, and the entries that do not count.

        The manifest is written before: from then on an archiver elsewhere that was thought dead cannot name them.
        """
        self._write_manifest()
        named = self._manifest.objects()
        try:
            there = [name for each in (QUEUE_DIRECTORY, LOG_DIRECTORY) for name in self._storage.names(each)]
            for name in there:
                if name not in named and _OURS.fullmatch(name):
                    self._storage.remove(name)
            for queue in self._manifest.queues:
                self._queue_archiver.trim(queue)
        except ArchiveError as error:
            _log.warning("leftovers of an unfinished run stay in the archive: %s", error)
            return
        self._manifest.commit_log.pending = []
        self._write_manifest()

    def _hold(self, base: int) -> bool:
        """Open a commit log file, so that it can be read even if retention removes it; False if it is already gone."""
        try:
            self._held.read(str(self._reader.log_files.path(base)), self._log_bytes, 0, 1)
        except FileNotFoundError:
            return False
        return True

    def _archive_log_file(self, pending: PendingFile) -> LogFile:
        """Upload a commit log file that is held open; return its entry in the manifest."""
        crc = self._uploads.put(
            log_file_name(pending.begin),
            self._log_bytes,
            lambda: self._log_parts(pending.begin),
            may_be_there=pending.begin in self._unfinished,
        )
        self._held.drop(str(self._reader.log_files.path(pending.begin)))
        return LogFile(pending.file, pending.head_crc32, crc)

    def _head(self, base: int) -> int | None:
        """Return the CRC of the head of a commit log file; None if the file was removed."""
        try:
            return zlib.crc32(self._reader.log_files.read(base, 0, HEAD_BYTES))
        except FileNotFoundError:
            return None
        finally:
            self._reader.log_files.forget(base)

    def _open_manifest(self) -> Manifest:
        manifest = archive_manifest.read(self._storage)
        for name in (_OF_A_STORE,) if manifest is not None else (LOG_DIRECTORY, QUEUE_DIRECTORY):
            if self._storage.is_there(name):
                raise ArchiveMismatch(
                    f"{self._storage.shown} has a {name}, so it is not an archive but perhaps a store: nothing was "
                    "written; give the archive a place of its own"
                )
        if manifest is None:
            return Manifest(commit_log_file_bytes=self._log_bytes, consume_queue_file_entries=self._entries_per_file)
        return manifest

    def _write_manifest(self) -> None:
        written = archive_manifest.read_sequence(self._storage)
        if written != (self._manifest.sequence or None):
            raise ArchiveBusy(
                f"archive {self._storage.shown}: another archiver has written {NAME} meanwhile (number {written} "
                f"instead of {self._manifest.sequence}): archive again when that one has ended"
            )
        self._manifest.sequence += 1
        text = self._manifest.render()
        self._progress(Upload(NAME, 0, len(text)))
        self._storage.write(NAME, [text])
        self._progress(Upload(NAME, len(text), len(text)))

    def _gaps(self) -> list[tuple[int, int]]:
        return shape.gaps([file.begin for file in self._manifest.commit_log.files], self._log_bytes)

    def _check_store(self, sealed: list[int]) -> None:
        """Raise ArchiveMismatch if the archive belongs to another store."""
        manifest, url = self._manifest, self._storage.shown
        sizes = manifest.commit_log_file_bytes, manifest.consume_queue_file_entries
        if sizes != (self._log_bytes, self._entries_per_file):
            raise ArchiveMismatch(
                f"archive {url} is of a store with commit log files of {sizes[0]} bytes and consume queue files of "
                f"{sizes[1]} entries; this store has {self._log_bytes} and {self._entries_per_file}: {_OTHER_STORE}"
            )
        known = {file.begin: file.head_crc32 for file in [*manifest.commit_log.files, *manifest.commit_log.pending]}
        for base in reversed(sealed):
            if base in known and (head := self._head(base)) is not None:
                if head != known[base] or self._is_cut(base):
                    raise ArchiveMismatch(f"archive {url} has another {log_file_name(base)}: {_OTHER_STORE}")
                return
        if known and sealed and sealed[0] < manifest.commit_log.end:
            raise ArchiveMismatch(
                f"archive {url} goes to byte {manifest.commit_log.end} of the log, and the log of this store, which "
                f"has none of its files, begins at {sealed[0]}: {_OTHER_STORE}"
            )

    def _is_cut(self, base: int) -> bool:
        """Return whether an archived file differs from the local one: a power cut undoes what was not flushed.

        In a store whose runtime file can be trusted, only flushed files are archived.
        """
        archived = [file.crc32 for file in self._manifest.commit_log.files if file.begin == base]
        if not archived or self._reader.state is not None:
            return False
        with suppress(FileNotFoundError):
            return crc_of(self._log_parts(base)) != archived[0]
        return False

    def _log_parts(self, base: int) -> Iterator[bytes]:
        path, size = str(self._reader.log_files.path(base)), self._log_bytes
        part = archive_uploads.READ_BYTES
        return (self._held.read(path, size, position, part) for position in range(0, size, part))


_OURS = re.compile(rf"(?:{LOG_DIRECTORY}|{QUEUE_DIRECTORY}/[^/]+/[0-9]+)/[0-9]{{20}}")
_OF_A_STORE = "lock"
_OTHER_STORE = (
    "the archive is another store's, or this store has lost data; nothing was written; give each store a URL of its own"
)


def sealed_files(reader: StoreReader) -> list[int]:
    """Return the first byte of each commit log file that will never change again, in order."""
    files, state = reader.log_files, reader.state
    bases = [base for base in files.bases() if base + files.file_bytes > reader.begin]
    if state is not None:
        end = min(state.published_to, state.flushed_to)
        return [base for base in bases if base + files.file_bytes <= end]
    for number in range(len(bases) - 1, 0, -1):
        with suppress(StoreCorrupt):  # a page that the disk cannot read
            if shape.begins_with_record(files, bases[number]):
                return bases[:number]
    return []


def _check_place(root: Path, storage: Storage) -> None:
    place = storage.local_path
    if place is not None and root.resolve() in (place.resolve(), *place.resolve().parents):
        raise ArchiveMismatch(f"{storage.shown} lies in the store {root}: give a place outside the store")


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Be the only archiver of a store. The lock ends with the process; a broker ignores it."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveBusy(f"another process archives the store {root}: archive again when it has ended") from None
        except OSError:  # a file system without locks: only the sequence number protects
            pass
        yield
    finally:
        os.close(descriptor)
