"""Manifest: ``manifest.json``, which says what an archive of a store's sealed files holds.

====================================  ==================================================================================
field                                 meaning
====================================  ==================================================================================
``format``, ``version``               ``rmq-archive``, 1
``sequence``                          grows by one each time the manifest is written
``commit_log_file_bytes``             size of each commit log file
``consume_queue_file_entries``        entries of 20 bytes in each consume queue file, which is always of full size
``commit_log.begin``, ``.end``        commit log offsets: first byte of the oldest file, end of the newest file
``commit_log.files[]``                ``file`` (its first byte, 20 digits), ``crc32`` of all of it, ``head_crc32`` of
                                      its first 4,096 bytes
``commit_log.pending[]``              ``file`` and ``head_crc32`` of files whose upload has begun; a killed archiver
                                      leaves them here, until a later one has removed their incomplete objects
``queues[]``                          ``topic``, ``queue_id``, and the queue offsets ``min_offset`` to ``max_offset``
                                      (exclusive) of the archived messages
``queues[].files[]``                  ``file`` (its first byte, 20 digits), ``entries``, the number that
                                      count, ``crc32`` of all of it when it was written
====================================  ==================================================================================

If a file between two others is missing, retention removed it before it was archived. Objects that the manifest does not
name do not count. Names of objects are built here from numbers and checked topics, never copied from a manifest.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import pairwise
from typing import Annotated, Literal

import msgspec

from rmqclient.archive.errors import ArchiveCorrupt, ArchiveMismatch
from rmqclient.archive.storage import Storage
from rmqclient.names import MAX_NAME_CHARACTERS
from rmqclient.store import MessageQueue
from rmqclient.store.files.file_queue import FILE_NAME_DIGITS
from rmqclient.store.log.consume_queue import ENTRY

NAME = "manifest.json"
MOST_BYTES = 256 << 20
"""Size limit of a manifest; the manifest of a terabyte takes some 5 MB."""
HEAD_BYTES = 4_096
LOG_DIRECTORY = "commitlog"
QUEUE_DIRECTORY = "consumequeue"

_LARGEST_FILE = 2**31 - 1
_ENTRY_BYTES = ENTRY.size
_TRIES = 3
_HEAD_OF_MANIFEST = 128
_SEQUENCE = re.compile(rb'"sequence":([0-9]{1,18})[,}]')

FileName = Annotated[str, msgspec.Meta(pattern=rf"\A[0-9]{{{FILE_NAME_DIGITS}}}\Z")]
Topic = Annotated[str, msgspec.Meta(pattern=rf"\A[%|a-zA-Z0-9_-]{{1,{MAX_NAME_CHARACTERS}}}\Z")]
Crc = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class PendingFile(msgspec.Struct, frozen=True):
    """A commit log file that is being uploaded."""

    file: FileName
    head_crc32: Crc

    @property
    def begin(self) -> int:
        """Commit log offset of its first byte."""
        return int(self.file)


class LogFile(PendingFile, frozen=True):
    """A commit log file."""

    crc32: Crc


class QueueFile(msgspec.Struct, frozen=True):
    """A consume queue file, of which the first ``entries`` count."""

    file: FileName
    entries: Annotated[int, msgspec.Meta(ge=1, le=_LARGEST_FILE)]
    crc32: Crc

    @property
    def first(self) -> int:
        """Queue offset of its first entry."""
        return int(self.file) // _ENTRY_BYTES


class ArchivedQueue(msgspec.Struct, frozen=True):
    """The consume queue files of one queue."""

    topic: Topic
    queue_id: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    min_offset: Offset
    max_offset: Offset
    files: list[QueueFile]

    @property
    def queue(self) -> MessageQueue:
        """The queue itself."""
        return MessageQueue(self.topic, self.queue_id)


class CommitLog(msgspec.Struct):
    """The commit log files."""

    begin: Offset = 0
    end: Offset = 0
    files: list[LogFile] = []
    pending: list[PendingFile] = []


class Manifest(msgspec.Struct, kw_only=True):
    """The content of an archive."""

    format: Literal["rmq-archive"] = "rmq-archive"
    version: int = 1
    sequence: Offset = 0
    commit_log_file_bytes: Annotated[int, msgspec.Meta(ge=1, le=_LARGEST_FILE)]
    consume_queue_file_entries: Annotated[int, msgspec.Meta(ge=1, le=_LARGEST_FILE // _ENTRY_BYTES)]
    commit_log: CommitLog = msgspec.field(default_factory=CommitLog)
    queues: list[ArchivedQueue] = []

    def objects(self) -> set[str]:
        """Return the names of the objects that count."""
        logs = {log_file_name(file.begin) for file in self.commit_log.files}
        return logs | {queue_file_name(queue.queue, file.first) for queue in self.queues for file in queue.files}

    def render(self) -> bytes:
        """Return the JSON text of the manifest."""
        return msgspec.json.encode(self)


def parse(text: bytes, url: str) -> Manifest:
    """Parse the text of a manifest; error messages name ``url``.

    Raises ArchiveCorrupt, which names the wrong field, and ArchiveMismatch for a manifest of a later version.
    """
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except msgspec.DecodeError as error:
        raise ArchiveCorrupt(f"archive {url}: {NAME}: {error}") from None
    if manifest.version != 1:
        raise ArchiveMismatch(
            f"archive {url}: {NAME} has version {manifest.version}, this library reads version 1: use a later library"
        )
    if problem := _problem(manifest):
        raise ArchiveCorrupt(f"archive {url}: {NAME}: {problem}")
    return manifest


def read(storage: Storage) -> Manifest | None:
    """Return the manifest of an archive; None without one. Raises ArchiveError, and as :func:`parse`."""
    for _ in range(_TRIES - 1):  # a manifest that is replaced after its size was read is cut short
        with suppress(ArchiveCorrupt):
            return _read(storage)
    return _read(storage)


def read_sequence(storage: Storage) -> int | None:
    """Return the sequence number of the manifest without reading the rest; None without a manifest."""
    try:
        file = storage.open(NAME)
    except FileNotFoundError:
        return None
    try:
        return sequence_of(file.read(0, _HEAD_OF_MANIFEST))
    finally:
        file.close()


def _read(storage: Storage) -> Manifest | None:
    try:
        file = storage.open(NAME)
    except FileNotFoundError:
        return None
    try:
        if file.size > MOST_BYTES:
            raise ArchiveCorrupt(
                f"archive {storage.shown}: {NAME} has {file.size} bytes; at most {MOST_BYTES} are read"
            )
        return parse(file.read(0, file.size), storage.shown)
    finally:
        file.close()


def sequence_of(head: bytes) -> int | None:
    """Return the sequence number in the first bytes of a manifest; None if they hold none."""
    found = _SEQUENCE.search(head)
    return int(found[1]) if found else None


def log_file_name(begin: int) -> str:
    """Return the name of the commit log file that begins at an offset."""
    return f"{LOG_DIRECTORY}/{file_name(begin)}"


def queue_file_name(queue: MessageQueue, first: int) -> str:
    """Return the name of the consume queue file that begins with a queue offset."""
    return f"{QUEUE_DIRECTORY}/{queue.topic}/{queue.queue_id}/{file_name(first * _ENTRY_BYTES)}"


def file_name(begin: int) -> str:
    """Return the name that the store gives to a file."""
    return f"{begin:0{FILE_NAME_DIGITS}d}"


def _problem(manifest: Manifest) -> str:
    log, log_bytes = manifest.commit_log, manifest.commit_log_file_bytes
    begins = [file.begin for file in log.files]
    if problem := _order_problem(begins, log_bytes) or _order_problem([file.begin for file in log.pending], log_bytes):
        return f"commit_log: {problem}"
    if begins and (log.begin, log.end) != (begins[0], begins[-1] + log_bytes):
        return f"commit_log: begin {log.begin} and end {log.end} do not match the files"
    if len({(queue.topic, queue.queue_id) for queue in manifest.queues}) != len(manifest.queues):
        return "queues: one of them is there twice"
    for queue in manifest.queues:
        if problem := _queue_problem(queue, manifest.consume_queue_file_entries):
            return f"queue {queue.queue_id} of {queue.topic}: {problem}"
    return ""


def _queue_problem(queue: ArchivedQueue, entries: int) -> str:
    if problem := _order_problem([int(file.file) for file in queue.files], entries * _ENTRY_BYTES):
        return problem
    if any(file.entries > entries for file in queue.files):
        return f"a file of {entries} entries has more"
    end = queue.files[-1].first + queue.files[-1].entries if queue.files else 0
    if not queue.min_offset <= queue.max_offset <= end:
        return f"min_offset {queue.min_offset}, max_offset {queue.max_offset}, and the files end at {end}"
    return ""


def _order_problem(begins: list[int], file_bytes: int) -> str:
    if any(begin % file_bytes or begin + file_bytes >= 2**63 for begin in begins):
        return f"a file does not begin at a multiple of {file_bytes}"
    if any(later <= earlier for earlier, later in pairwise(begins)):
        return "files are not in order"
    return ""
