"""Views of archives: an archive alone, and a store and its archive as one log.

:class:`ArchivedView` reads an archive by ranges: small ones for scattered requests, up to 8 MiB for consecutive
requests. :class:`JointView` reads what a store still has locally, and the rest from its archive.

The manifest of an archive is read again every ten seconds, and for a request for something that it does not name.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from zlib import crc32

from rmqclient.archive import manifest as archive_manifest
from rmqclient.archive.errors import ArchiveCorrupt, ArchiveError, ArchiveMismatch, NotArchived
from rmqclient.archive.manifest import (
    HEAD_BYTES,
    LOG_DIRECTORY,
    NAME,
    ArchivedQueue,
    LogFile,
    Manifest,
    QueueFile,
    log_file_name,
    queue_file_name,
)
from rmqclient.archive.storage import Object, Storage, is_url
from rmqclient.store import MessageQueue
from rmqclient.store.errors import StoreUnusable
from rmqclient.store.inspect.view import LocalView, LogPart, View
from rmqclient.store.log.consume_queue import ENTRY, PRE_BLANK

_SIZE_AT = ENTRY.at["size"]
_BLANK = ENTRY.pack(*PRE_BLANK)
_LOOK_AGAIN_S = 10.0

_SMALLEST_RANGE = 256 << 10
_LARGEST_RANGE = 8 << 20
_GROWTH = 4
_RANGES = 6
_OPEN_OBJECTS = 8


def open_view(
    path: str,
    archive: str | None = None,
    options: Mapping[str, str] | None = None,
    *,
    may_be_elsewhere: bool = False,
) -> View:
    """Return the view of a store: ``path`` is its directory, or the URL of an archive.

    With ``archive``, the URL of an archive, both are read as one log; ``options`` are those of
    :class:`rmqclient.archive.storage.Storage`. ``may_be_elsewhere`` is for executors: without such a directory only
    the archive is read. Raises StoreUnusable, ArchiveError, ArchiveMismatch if the two do not belong together.
    """
    if is_url(path):
        if archive is not None:
            raise ArchiveError("give the URL of an archive once: as the path, or beside the directory of its store")
        return _view_of_url(path, options)
    if archive is None:
        return LocalView(Path(path))
    archived = ArchivedView(archive, options)
    try:
        return JointView(LocalView(Path(path)), archived)
    except StoreUnusable:
        if may_be_elsewhere and not Path(path).exists():
            return archived
        raise


def _view_of_url(url: str, options: Mapping[str, str] | None) -> View:
    parts = urlsplit(url)
    root = Path(unquote(parts.path))
    if parts.scheme == "file" and not (root / NAME).exists() and (root / LOG_DIRECTORY).exists():
        return LocalView(root)
    return ArchivedView(url, options)


class ArchivedView:
    """The archive at ``url``. A pickle holds the URL and the options, credentials included.

    Raises ArchiveError if it does not exist or cannot be reached, ArchiveCorrupt.
    """

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        self._storage = Storage(url, options)
        self._ranges = _Ranges(self._storage)
        self._sequence = -1
        self._looked_at = -_LOOK_AGAIN_S
        self._log_files: dict[int, LogFile] = {}
        self._queues: dict[MessageQueue, ArchivedQueue] = {}
        self._queue_files: dict[MessageQueue, dict[int, QueueFile]] = {}
        manifest = self._look()
        self.log_file_bytes = manifest.commit_log_file_bytes
        self.entries_per_file = manifest.consume_queue_file_entries

    @property
    def shown(self) -> str:
        """The URL without credentials."""
        return self._storage.shown

    def queues(self) -> list[MessageQueue]:
        """Return every queue with archived messages, sorted."""
        self.refresh()
        return sorted(self._queues)

    def offsets(self, queue: MessageQueue) -> range:
        """Return the queue offsets from the oldest archived message to the newest one.

        Messages that retention removed before they were archived are missing in between. Empty for an unknown queue.
        """
        self.refresh()
        known = self._queues.get(queue)
        return range(known.min_offset, known.max_offset) if known is not None else range(0)

    def ranges(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, range]:
        """Return what :meth:`offsets` returns of each queue."""
        return {queue: self.offsets(queue) for queue in queues}

    def log_range(self) -> range:
        """Return the commit log offsets from the oldest archived byte to the end of the newest file."""
        self.refresh()
        return self._log_range

    def entries(self, queue: MessageQueue, first: int, stop: int) -> bytes:
        """Return entries from ``first`` on, up to ``stop`` or the end of their file.

        Raises NotArchived, ArchiveError, ArchiveCorrupt.
        """
        begin = first - first % self.entries_per_file
        file = self._queue_files.get(queue, {}).get(begin)
        if file is None or first >= begin + file.entries:
            self.refresh(at_once=True)
            file = self._queue_files.get(queue, {}).get(begin)
        if file is None or first >= begin + file.entries:
            raise NotArchived(
                f"archive {self.shown} has no entry {first} of queue {queue.queue_id} of {queue.topic}: {_EXPIRED}"
            )
        name = queue_file_name(queue, begin)
        count = min(stop, begin + file.entries) - first
        start, content = self._ranges.read(
            name, file.crc32, self.entries_per_file * ENTRY.size, (first - begin) * ENTRY.size, count * ENTRY.size
        )
        at = (first - begin) * ENTRY.size - start
        found = content[at : at + count * ENTRY.size]
        if found and not int.from_bytes(found[_SIZE_AT - ENTRY.size :][:4], "big"):
            raise ArchiveCorrupt(
                f"archive {self.shown}: {name} has fewer than the {file.entries} entries that {NAME} says: archive the "
                "store again"
            )
        return self._without_blanks(found, queue, first)

    def log(self, commit_log_offset: int, size: int) -> LogPart:
        """Return a part of the log that holds ``size`` bytes from an offset on, or as many as its file has.

        Raises NotArchived, ArchiveError, ArchiveCorrupt.
        """
        base = commit_log_offset - commit_log_offset % self.log_file_bytes
        file = self._log_files.get(base)
        if file is None:
            self.refresh(at_once=True)
            file = self._log_files.get(base)
        if file is None:
            raise NotArchived(f"archive {self.shown} has no byte {commit_log_offset} of the log: {_EXPIRED}")
        start, content = self._ranges.read(
            log_file_name(base), file.crc32, self.log_file_bytes, commit_log_offset - base, size
        )
        return LogPart(content, base + start, base + self.log_file_bytes)

    def release(self) -> None:
        """Free bytes that no object refers to any more."""
        self._ranges.clear()

    def refresh(self, *, at_once: bool = False) -> None:
        """Read the manifest again, unless it was read a short while ago. Raises ArchiveError, ArchiveCorrupt."""
        if at_once or time.monotonic() - self._looked_at >= _LOOK_AGAIN_S:
            if archive_manifest.read_sequence(self._storage) == self._sequence:
                self._looked_at = time.monotonic()
            else:
                self._look()

    def log_files(self) -> dict[int, LogFile]:
        """Return the archived commit log files by their first byte, in order."""
        return self._log_files

    def _without_blanks(self, entries: bytes, queue: MessageQueue, first: int) -> bytes:
        """Return the entries before a blank one, which replaces a message that was removed before it was archived."""
        at = entries.find(_BLANK)
        while at % ENTRY.size and at >= 0:
            at = entries.find(_BLANK, at + 1)
        if at == 0:
            raise NotArchived(
                f"archive {self.shown} has no entry {first} of queue {queue.queue_id} of {queue.topic}: {_EXPIRED}"
            )
        return entries if at < 0 else entries[:at]

    def __reduce__(self) -> tuple[type[ArchivedView], tuple[str, dict[str, str]]]:
        return ArchivedView, (self._storage.url, self._storage.options)

    def _look(self) -> Manifest:
        manifest = archive_manifest.read(self._storage)
        if manifest is None:
            raise ArchiveError(
                f"archive {self.shown}: there is no {NAME}: give another URL, or `rmq store archive` first"
            )
        self._looked_at = time.monotonic()
        self._sequence = manifest.sequence
        self._log_range = range(manifest.commit_log.begin, manifest.commit_log.end)
        self._log_files = {file.begin: file for file in manifest.commit_log.files}
        self._queues = {queue.queue: queue for queue in manifest.queues}
        self._queue_files = {queue.queue: {file.first: file for file in queue.files} for queue in manifest.queues}
        return manifest


_EXPIRED = "retention removed it before it was archived, or it was not archived yet"


class JointView:
    """A store and its archive as one log: read locally as far as possible, from the archive below that.

    Raises ArchiveMismatch if the archive is another store's.
    """

    def __init__(self, local: LocalView, archived: ArchivedView) -> None:
        self._local = local
        self._archived = archived
        self.log_file_bytes = local.log_file_bytes
        self.entries_per_file = local.entries_per_file
        self._local_from: dict[MessageQueue, int] = {}
        self._gaps: dict[MessageQueue | None, int] = {}
        """First local offset at the last gap after the archive, by queue; the key None is the log."""
        self._check()

    def queues(self) -> list[MessageQueue]:
        """Return every queue of the store or the archive, sorted."""
        return sorted({*self._local.queues(), *self._archived.queues()})

    def offsets(self, queue: MessageQueue) -> range:
        """Return the queue offsets from the oldest archived message to the newest one of the store."""
        return self._offsets(queue, self._local.offsets(queue))

    def ranges(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, range]:
        """Return what :meth:`offsets` returns of each queue, by one look at the store."""
        return {queue: self._offsets(queue, local) for queue, local in self._local.ranges(queues).items()}

    def _offsets(self, queue: MessageQueue, local: range) -> range:
        archived = self._archived.offsets(queue)
        if self._is_new_gap(queue, archived, local):
            archived = self._archived.offsets(queue)
        self._local_from[queue] = local.start
        if not archived:
            return local
        if not local:
            return range(archived.start, max(archived.stop, local.stop))
        return range(min(archived.start, local.start), max(archived.stop, local.stop))

    def log_range(self) -> range:
        """Return the commit log offsets from the oldest archived byte to the end of what may be read now."""
        local, archived = self._local.log_range(), self._archived.log_range()
        if self._is_new_gap(None, archived, local):
            archived = self._archived.log_range()
        if not archived:
            return local
        return range(min(archived.start, local.start) if local else archived.start, max(archived.stop, local.stop))

    def entries(self, queue: MessageQueue, first: int, stop: int) -> bytes:
        """Return entries from ``first`` on, up to ``stop`` or where the store or the archive ends; see View."""
        if queue not in self._local_from:
            self._local_from[queue] = self._local.offsets(queue).start
        local_from = self._local_from[queue]
        if first >= local_from:
            with suppress(FileNotFoundError):  # retention has removed the file meanwhile
                return self._local.entries(queue, first, stop)
            return self._archived.entries(queue, first, stop)
        # The local file may begin with blank entries for removed messages.
        return self._archived.entries(queue, first, min(stop, local_from))

    def log(self, commit_log_offset: int, size: int) -> LogPart:
        """Return a part of the log that holds ``size`` bytes from an offset on; see View."""
        with suppress(FileNotFoundError):
            return self._local.log(commit_log_offset, size)
        return self._archived.log(commit_log_offset, size)

    def release(self) -> None:
        """Close files that were removed meanwhile, and free bytes read from the archive."""
        self._local.release()
        self._archived.release()
        self._local_from.clear()

    def __reduce__(self) -> tuple[Any, tuple[Path, ArchivedView]]:
        return _joint, (self._local.root, self._archived)

    def _is_new_gap(self, queue: MessageQueue | None, archived: range, local: range) -> bool:
        """Read the manifest again if a new gap precedes the local files: perhaps they were archived, then removed."""
        if archived.stop >= local.start or self._gaps.get(queue) == local.start:
            return False
        self._gaps[queue] = local.start
        self._archived.refresh(at_once=True)
        return True

    def _check(self) -> None:
        sizes = self.log_file_bytes, self.entries_per_file
        if sizes != (self._archived.log_file_bytes, self._archived.entries_per_file):
            raise ArchiveMismatch(f"{self._names()} have files of different sizes: {_NOT_TOGETHER}")
        for base, file in reversed(self._archived.log_files().items()):
            try:
                with (self._local.root / log_file_name(base)).open("rb") as local:
                    head = local.read(HEAD_BYTES)
            except FileNotFoundError:
                continue
            if crc32(head) != file.head_crc32:
                raise ArchiveMismatch(f"{self._names()} differ in {log_file_name(base)}: {_NOT_TOGETHER}")
            return

    def _names(self) -> str:
        return f"the store {self._local.root} and the archive {self._archived.shown}"


_NOT_TOGETHER = "they do not belong together; give the archive of this store"


def _joint(root: Path, archived: ArchivedView) -> JointView:
    return JointView(LocalView(root), archived)


class _Ranges:
    """Bytes of objects that never change, read by ranges that grow with consecutive requests; keeps the last ranges.

    An object that replaces another one has another ``state``.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._kept: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()
        self._objects: OrderedDict[tuple[str, int], Object] = OrderedDict()
        self._next: tuple[str, int] = "", 0
        self._size = _SMALLEST_RANGE

    def read(self, name: str, state: int, object_bytes: int, position: int, count: int) -> tuple[int, bytes]:
        """Return bytes that include ``count`` from ``position`` on, or up to the end, and the position of the first."""
        count = min(count, object_bytes - position)
        for key in reversed(self._kept):
            at = position - key[2]
            if key[:2] == (name, state) and at >= 0 and at + count <= len(self._kept[key]):
                self._kept.move_to_end(key)
                return key[2], self._kept[key]
        return position, self._fetch(name, state, object_bytes, position, count)

    def clear(self) -> None:
        """Forget all bytes and close the objects."""
        self._kept.clear()
        while self._objects:
            self._objects.popitem()[1].close()

    def _fetch(self, name: str, state: int, object_bytes: int, position: int, count: int) -> bytes:
        before, end = self._next
        follows = (name, True) == (before, end - self._size <= position <= end + self._size)
        self._size = min(self._size * _GROWTH, _LARGEST_RANGE) if follows else _SMALLEST_RANGE
        content = self._object(name, state, object_bytes).read(position, max(count, self._size))
        self._next = name, position + len(content)
        self._kept[name, state, position] = content
        if len(self._kept) > _RANGES:
            self._kept.popitem(last=False)
        return content

    def _object(self, name: str, state: int, object_bytes: int) -> Object:
        found = self._objects.get((name, state))
        if found is None:
            try:
                found = self._storage.open(name)
            except FileNotFoundError:
                raise ArchiveCorrupt(
                    f"archive {self._storage.shown}: {name} is missing, and {NAME} names it: put the file back"
                ) from None
            if found.size != object_bytes:
                raise ArchiveCorrupt(
                    f"archive {self._storage.shown}: {name} has {found.size} bytes instead of {object_bytes}: put a "
                    "whole copy of it back"
                )
            self._objects[name, state] = found
            if len(self._objects) > _OPEN_OBJECTS:
                self._objects.popitem(last=False)[1].close()
        self._objects.move_to_end((name, state))
        return found
