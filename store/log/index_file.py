"""Index files: which records have a key, for queries by key and by unique key.

``<root>/index/<time made, yyyyMMddHHmmssSSS>``, each of the same size: a header, ``index_slots`` hash slots, room for
``index_entries`` entries. All of it is derived from the commit log, so it may be deleted and is rebuilt.

The header, big-endian (IndexHeader)::

    byte  size  field            meaning
    ----  ----  ---------------  -------
       0     8  begin_timestamp  store time of the first record indexed, ms
       8     8  end_timestamp    of the last one
      16     8  begin_offset     commit log offset of the first record indexed
      24     8  end_offset       of the last one
      32     4  slots_used       slots that point to an entry
      36     4  next_number      of the entry to be written next; 1 in an empty file
    ----  ----
      40

A slot is the number, 4 bytes, of the newest entry whose hash belongs to it, 0 for none. An entry (IndexFile.putKey)::

    byte  size  field              meaning
    ----  ----  -----------------  -------
       0     4  key_hash           Java hash of topic#key, without its sign
       4     8  commit_log_offset  first byte of the record
      12     4  seconds            from the file's begin_timestamp to the record's store time
      16     4  previous           number of the entry before it in the same slot, 0 for none
    ----  ----
      20

The kernel writes entries and follows chains (``store/kernel/dispatch/index.pxi``); this module makes, opens and removes
the files. Entry 0 is never used. A file is full when ``next_number`` is ``index_entries``; its successor takes over its
end as the begin, until its first entry.

A search finds candidates: different keys can have one hash, and an index file has no checksum. The caller compares the
key with the record. Numbers fall along a chain, so a damaged chain ends and never loops. A search reads the few bytes
that it needs from every file; only adding entries, and checking them, maps a file.

Invariants, checked by ``rmq store verify``:

11. A slot is 0 or the number of an entry, and ``previous`` is smaller than the number of its own entry.
12. The record that an entry points to has a key of that hash.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.clock import boottime
from rmqclient.store.errors import as_store_error
from rmqclient.store.files.file_queue import MappingCache
from rmqclient.store.files.mapped_file import allocate, map_file, open_file, open_plain, sync_directory, sync_file
from rmqclient.store.kernel._kernel import Mapping, ReceivedMessage, find_in_index, index_key_hash
from rmqclient.store.log.inner_batch import unique_keys

DIRECTORY = "index"

_HEADER = layout.INDEX_HEADER
_ENTRY = layout.INDEX_ENTRY
_SLACK_MS = 1_000
"""Entries keep whole seconds."""
_FAR_MS = 1 << 62
"""No store time is so far from 1970."""
_COARSEST_NS = 2_000_000_000
"""No file system's times are coarser. Two changes of a directory in one step of its time look like one."""


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The header of an index file."""

    begin_timestamp: int
    end_timestamp: int
    """Never negative; 0 when it is not known."""
    begin_offset: int
    end_offset: int
    slots_used: int
    next_number: int


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One entry of an index file."""

    key_hash: int
    commit_log_offset: int
    seconds: int
    previous: int


class IndexFile:
    """One mapped index file."""

    def __init__(self, path: Path, mapping: Mapping, slots: int, entries: int) -> None:
        self.path = path
        self.mapping = mapping
        self.slots = slots
        self.entries = entries

    @property
    def header(self) -> IndexHeader:
        """The header as it stands; ``next_number`` is 1 in a file that a broker has just made and left all zero."""
        header = _header_in(self.mapping)
        return header if header.next_number else replace(header, next_number=1)

    @property
    def last_offset(self) -> int | None:
        """Commit log offset of the last entry, None without entries. After a kill the header's end can be lower."""
        number = self.header.next_number - 1
        return self.entry(number).commit_log_offset if 1 <= number < self.entries else None

    def entry(self, number: int) -> IndexEntry:
        """Return an entry. ``number`` is from 1 to ``index_entries - 1``."""
        return IndexEntry(*_ENTRY.unpack_from(self.mapping, self.position(number)))

    def position(self, number: int) -> int:
        """Return the byte in the file at which an entry begins."""
        return _HEADER.size + self.slots * layout.INDEX_SLOT_SIZE + number * _ENTRY.size

    def slot(self, key_hash: int) -> int:
        """Return the number of the newest entry in the slot of a hash, 0 for none, for the checks of a store.

        Entries are written by ``put_key`` and found by ``find_in_index``, in ``store/kernel/dispatch/index.pxi``.
        """
        at = _HEADER.size + key_hash % self.slots * layout.INDEX_SLOT_SIZE
        return int.from_bytes(memoryview(self.mapping)[at : at + layout.INDEX_SLOT_SIZE], "big", signed=True)

    def entries_of(self, commit_log_offset: int) -> int:
        """Return how many entries at the end of the file are for a record."""
        number = self.header.next_number - 1
        found = 0
        while number - found >= 1 and self.entry(number - found).commit_log_offset == commit_log_offset:
            found += 1
        return found


class IndexFiles:
    """Every index file of a store, from the oldest to the newest. Other processes add files and remove them."""

    def __init__(self, root: Path, slots: int, entries: int, mappings: MappingCache) -> None:
        self.slots = slots
        self.entries = entries
        self.directory = root / DIRECTORY
        self.file_bytes = file_bytes(slots, entries)
        self._root = root
        self._mappings = mappings
        self._listed = _Listed(None, (), 0)

    def paths(self) -> tuple[Path, ...]:
        """Return the paths of the files, in order; other names are ignored.

        The directory is not listed when it has not changed: whoever looks for a key, or adds one, asks this.
        """
        listed, now = self._listed, boottime()
        try:
            changed = self.directory.stat().st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return ()
        if changed == listed.changed and listed.is_settled:
            return listed.paths
        since = listed.since if changed == listed.changed else now
        self._listed = _Listed(changed, tuple(paths(self._root)), since, is_settled=now - since > _COARSEST_NS)
        return self._listed.paths

    def open(self, path: Path) -> IndexFile:
        """Map a file. Raises FileNotFoundError, and StoreCorrupt for a file of another size."""
        return IndexFile(path, self._mappings.get(str(path), self.file_bytes), self.slots, self.entries)

    def newest(self) -> IndexFile | None:
        """Map the newest file. Raises StoreCorrupt for a file of another size."""
        found = self.paths()
        return self.open(found[-1]) if found else None

    def to_fill(self, now_ms: int) -> IndexFile:
        """Return the newest file, with a header; make it if there is no file. Raises StoreFull."""
        newest = self.newest()
        if newest is None:
            return self.create(now_ms)
        if not _HEADER.read(newest.mapping)["next_number"]:  # its maker died, or is a broker
            self._begin(newest)
        return newest

    def create(self, now_ms: int) -> IndexFile:
        """Make the next file. Its name sorts after the newest one's, whatever the clock says. Raises StoreFull."""
        found = self.paths()
        path = self.directory / _name(now_ms, found[-1].name if found else "")
        allocate(path, self.file_bytes, self._root)
        file = self.open(path)
        self._begin(file)
        return file

    def _begin(self, file: IndexFile) -> None:
        """Write the header of an empty file: it takes over the end of the one before it."""
        before = [path for path in self.paths() if path.name < file.path.name]
        end = self.open(before[-1]).header if before else IndexHeader(0, 0, 0, 0, 0, 1)
        times_and_offsets = (end.end_timestamp, end.end_timestamp, end.end_offset, end.end_offset)
        _HEADER.pack_into(file.mapping, 0, *times_and_offsets, 0, 1)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there. Mappings in use stay valid. Raises StoreReplaced."""
        self._mappings.check_in_place()
        self._mappings.drop(str(path))
        path.unlink(missing_ok=True)

    def sync(self, file: IndexFile) -> None:
        """Make a file and its name durable."""
        sync_file(file.path)
        sync_directory(self.directory)

    def candidates(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yield the commit log offsets of records that may have a key of a topic, the newest first.

        A file that is removed meanwhile is skipped. Raises StoreCorrupt for a file of another size.
        """
        key_hash = index_key_hash(topic, key)
        for path in reversed(self.paths()):
            with suppress(FileNotFoundError):
                yield from self.candidates_in(path, key_hash, begin_ms, end_ms)

    def topics_with(self, topics: Sequence[str], key: str) -> list[str]:
        """Return those of some topics that may have a record with a key, in their order.

        Each file is opened once, however many topics there are. Raises StoreCorrupt for a file of another size.
        """
        left = {topic: index_key_hash(topic, key) for topic in topics}
        for path in reversed(self.paths()):
            with suppress(FileNotFoundError), self._opened(path) as descriptor:
                for topic, key_hash in list(left.items()):
                    found, _ = self._found(path, descriptor, key_hash, -_FAR_MS, _FAR_MS, 0)
                    if found:
                        del left[topic]
        return [topic for topic in topics if topic not in left]

    def candidates_in(self, path: Path, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yield what :meth:`candidates` finds in one file, by its hash. Raises FileNotFoundError, too.

        Damaged bytes end the search in the file.
        """
        earliest, latest = _within(begin_ms - _SLACK_MS), _within(end_ms + _SLACK_MS)
        after = 0
        while True:
            with self._opened(path) as descriptor:
                found, after = self._found(path, descriptor, key_hash, earliest, latest, after)
            yield from found
            if not after:
                return

    @contextmanager
    def _opened(self, path: Path) -> Iterator[int]:
        descriptor = open_file(path, self.file_bytes, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # what lies around an entry is of other keys
            yield descriptor
        finally:
            os.close(descriptor)

    def _found(
        self, path: Path, descriptor: int, key_hash: int, earliest: int, latest: int, after: int
    ) -> tuple[list[int], int]:
        try:
            return find_in_index(descriptor, self.slots, self.entries, key_hash, earliest, latest, after)
        except OSError as error:
            raise as_store_error(error, f"{path} cannot be read") from error


@dataclass(frozen=True, slots=True)
class _Listed:
    """The files of a directory that had been changed last at a time.

    It is settled when that time had been seen so long before the listing that every later change has another one.
    """

    changed: int | None
    paths: tuple[Path, ...]
    since: int
    is_settled: bool = False


def _within(time_ms: int) -> int:
    """Return a time that anybody may have asked for as one of 64 bits."""
    return max(-_FAR_MS, min(time_ms, _FAR_MS))


def file_bytes(slots: int, entries: int) -> int:
    """Return the size of an index file."""
    return _HEADER.size + slots * layout.INDEX_SLOT_SIZE + entries * _ENTRY.size


def paths(root: Path) -> list[Path]:
    """Return the index files of a store, from the oldest to the newest."""
    directory = root / DIRECTORY
    try:
        with os.scandir(directory) as entries:
            found = sorted(entry.name for entry in entries if entry.name.isdigit() and entry.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [directory / name for name in found]


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """The facts about an index file that recovery needs."""

    name: str
    size: int
    header: IndexHeader


def summaries(root: Path) -> tuple[IndexSummary, ...]:
    """Read the header of every index file; a file that is too short for a header counts as empty."""
    found = []
    for path in paths(root):
        with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
            content = file.read(_HEADER.size).ljust(_HEADER.size, b"\0")
        found.append(IndexSummary(path.name, path.stat().st_size, _header_in(content)))
    return tuple(found)


def _header_in(content: Mapping | bytes) -> IndexHeader:
    """Return the header that a file begins with; a negative end time, which no clock gives, counts as not known."""
    header = IndexHeader(*_HEADER.unpack_from(content, 0))
    return header if header.end_timestamp >= 0 else replace(header, end_timestamp=0)


def key_hashes(message: ReceivedMessage) -> set[int]:
    """Return the hashes of a record's keys, including its unique keys."""
    return {index_key_hash(message.topic, key) for key in [*message.keys, *unique_keys(message)]}


def sizes_in(path: Path) -> tuple[int, int] | None:
    """Work out how many slots and entries a broker's index file has; None if that is unclear.

    The file does not say. A broker's default is four entries a slot. A division fits if as many slots point to entries
    as the header says.
    """
    size = path.stat().st_size
    mapping = map_file(path, size, writable=False)
    for slots in _likely_slots(size - _HEADER.size):
        entries = (size - _HEADER.size - slots * layout.INDEX_SLOT_SIZE) // _ENTRY.size
        if entries > 1 and file_bytes(slots, entries) == size and _fits(mapping, slots, entries):
            return slots, entries
    return None


def _likely_slots(room: int) -> Iterator[int]:
    yield room // (layout.INDEX_SLOT_SIZE + 4 * _ENTRY.size)
    yield room // (layout.INDEX_SLOT_SIZE + _ENTRY.size)
    if room < 1 << 16:
        yield from range(1, room // layout.INDEX_SLOT_SIZE)


def _fits(mapping: Mapping, slots: int, entries: int) -> bool:
    header = _header_in(mapping)
    content = memoryview(mapping)[_HEADER.size : _HEADER.size + slots * layout.INDEX_SLOT_SIZE]
    used = sum(any(content[at : at + layout.INDEX_SLOT_SIZE]) for at in range(0, len(content), layout.INDEX_SLOT_SIZE))
    return used == header.slots_used and header.next_number <= entries


def _name(now_ms: int, newest: str) -> str:
    name = _as_name(now_ms)
    if name > newest:
        return name
    seconds = datetime.strptime(newest[:14], "%Y%m%d%H%M%S")  # noqa: DTZ007 - names are local times
    following = seconds + timedelta(milliseconds=int(newest[14:]) + 1)
    return f"{following:%Y%m%d%H%M%S}{following.microsecond // 1000:03d}"


def _as_name(now_ms: int) -> str:
    now = datetime.fromtimestamp(now_ms / 1000)  # noqa: DTZ006 - local time, as RocketMQ has it
    return f"{now:%Y%m%d%H%M%S}{now_ms % 1000:03d}"
