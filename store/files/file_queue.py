"""File queue: ordered files of one kind and size, each named by its first byte in 20 digits.

A process keeps a bounded number of mappings and drops the least recently used one first. The kernel's appender and
grants only borrow theirs (``borrowed`` in store/kernel/memory.pxi), so the bound covers all mappings of a store. Files
that are not being appended or consumed are read without a mapping (store/files/cold_reads.py).

Pages of a mapping that were passed leave the page table of the process again (store/kernel/resident.pxi).

A removed file keeps its blocks while a process has it mapped: :meth:`MappingCache.release_removed` detaches it.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from weakref import WeakKeyDictionary

from rmqclient.store import layout
from rmqclient.store.errors import LimitReached
from rmqclient.store.files.cold_reads import ColdReads
from rmqclient.store.files.mapped_file import (
    FileIdentity,
    allocate,
    identity_of,
    is_at,
    map_file,
    reserve,
    sync_directory,
    sync_file,
)
from rmqclient.store.files.synced_file import SyncedFile
from rmqclient.store.kernel._kernel import Mapping
from rmqclient.store.native_threads import threading

FILE_NAME_DIGITS = layout.FILE_NAME_DIGITS
_FILE_NAME = re.compile(f"[0-9]{{{FILE_NAME_DIGITS}}}")

FIRST_BLOCKS = 16 << 10
"""Bytes that have blocks in a file that grows, when it is made."""
_PART_BYTES = 1 << 20
_ZEROS = bytes(_PART_BYTES)


class MappingCache:
    """The mappings of one process by path, at most ``limit`` of them, and the files that it keeps open.

    With ``any_size``, cold reads treat a file of another size as if it had the right size, for inspection.
    ``check_in_place`` is called before a file is opened, made or removed by its name; it raises StoreReplaced when that
    leads into another store.
    """

    def __init__(
        self,
        limit: int,
        *,
        writable: bool = True,
        any_size: bool = False,
        check_in_place: Callable[[], None] = lambda: None,
    ) -> None:
        self.check_in_place = check_in_place
        self.cold = ColdReads(any_size=any_size, check_in_place=check_in_place)
        self.synced = SyncedFile(check_in_place)
        self._limit = limit
        self._writable = writable
        self._mappings: OrderedDict[str, Mapping] = OrderedDict()
        self._alive: WeakKeyDictionary[Mapping, tuple[str, FileIdentity]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def get(self, path: str, size: int, *, grows: bool = False) -> Mapping:
        """Return the mapping of ``path``; map the file if it is not mapped. Raises as :func:`map_file`.

        How much of a file that ``grows`` has blocks is not known at first.
        If the kernel refuses another mapping, half of the present ones are dropped to make room.
        """
        with self._lock:
            mapping = self._mappings.get(path)
            if mapping is None:
                self.check_in_place()
                identity = identity_of(path)  # taken first: a file that is replaced from here on counts as removed
                try:
                    mapping = map_file(Path(path), size, writable=self._writable)
                except LimitReached:
                    self._shrink(len(self._mappings) // 2)
                    mapping = map_file(Path(path), size, writable=self._writable)
                if grows:
                    mapping.reserved = 0
                self._mappings[path] = mapping
                self._alive[mapping] = path, identity
                self._shrink(self._limit)
            else:
                self._mappings.move_to_end(path)
            mapping.use(_PART_BYTES)
            return mapping

    def drop(self, path: str) -> None:
        """Forget ``path``, whose file is about to be removed."""
        self.cold.drop(path)
        with self._lock:
            self._mappings.pop(path, None)

    def release_removed(self) -> None:
        """Detach the mappings of files that were removed, even if objects of this process still refer to them.

        A file that was replaced by another one, as when a store was removed and made anew, counts as removed.
        """
        self.cold.release_removed()
        self.synced.release_removed()
        with self._lock:
            for mapping, (path, identity) in list(self._alive.items()):
                if not is_at(path, identity):
                    if self._mappings.get(path) is mapping:
                        del self._mappings[path]
                    del self._alive[mapping]
                    mapping.detach()

    def clear(self) -> None:
        """Forget all mappings and close all files."""
        self.close_files()
        with self._lock:
            self._mappings.clear()

    def close_files(self) -> None:
        """Close all files; the mappings stay."""
        self.cold.clear()
        self.synced.close()

    def _shrink(self, count: int) -> None:
        while len(self._mappings) > count:
            self._mappings.popitem(last=False)


class FileQueue:
    """The files of one directory. ``base`` is the first byte of a file, a multiple of ``file_bytes``.

    Files that ``grow`` have their full size at once and blocks by need, which :meth:`reserve` gives them.
    """

    def __init__(
        self, directory: Path, file_bytes: int, *, scratch: Path, mappings: MappingCache, grow: bool = False
    ) -> None:
        self.directory = directory
        self.file_bytes = file_bytes
        self._prefix = f"{directory}/"
        self._scratch = scratch
        self._mappings = mappings
        self.cold = mappings.cold
        self._grow = grow
        self._named: set[int] = set()  # files whose names this process has made durable

    def bases(self) -> list[int]:
        """Return the first byte of every file there, in order; empty when the directory is missing.

        Names that no file of the queue can have are ignored.
        """
        try:
            names = os.listdir(self._prefix)  # noqa: PTH208  ten times as fast, for each of 10,000 queues
        except FileNotFoundError:
            return []
        bases = [int(name) for name in names if _FILE_NAME.fullmatch(name)]
        return sorted(base for base in bases if base % self.file_bytes == 0)

    def base_of(self, offset: int) -> int:
        """Return the first byte of the file that holds ``offset``."""
        return offset - offset % self.file_bytes

    def path(self, base: int) -> Path:
        """Return the path of the file that begins at ``base``."""
        return Path(self.name(base))

    def allocate(self, base: int) -> bool:
        """Make the file at ``base``; False if it exists. Raises StoreFull, StoreReplaced."""
        self._mappings.check_in_place()
        return allocate(self.path(base), self.file_bytes, self._scratch, reserved=FIRST_BLOCKS if self._grow else None)

    def reserve(self, base: int, size: int) -> Mapping:
        """Map the file at ``base``, and give its first ``size`` bytes, or some more, blocks if they may have none.

        Each time it is twice as many as before. Raises StoreFull, and as :meth:`mapping`.
        """
        mapping = self.mapping(base)
        if mapping.reserved < size:
            self._mappings.check_in_place()
            wanted = min(self.file_bytes, max(2 * mapping.reserved, -(-size // FIRST_BLOCKS) * FIRST_BLOCKS))
            reserve(self.path(base), wanted)
            mapping.reserved = wanted
        return mapping

    def mapping(self, base: int) -> Mapping:
        """Map the file at ``base``.

        Raises FileNotFoundError, StoreCorrupt for a file of another size, LimitReached.
        """
        return self._mappings.get(self.name(base), self.file_bytes, grows=self._grow)

    def read(self, base: int, position: int, count: int) -> bytes:
        """Return ``count`` bytes of the file at ``base`` by a cold read, fewer only at its end.

        Raises FileNotFoundError, and StoreCorrupt for a file of another size or a byte that cannot be read.
        """
        return self.cold.read(self.name(base), self.file_bytes, position, count)

    def read_into(self, base: int, position: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from ``position`` of the file at ``base`` on, and return the number of bytes.

        For sequential readers: it reuses one buffer. Raises as :meth:`read`.
        """
        return self.cold.read_into(self.name(base), self.file_bytes, position, buffer)

    def zero(self, base: int, start: int, stop: int) -> int:
        """Zero the parts of bytes ``[start, stop)`` that are not zero; return how many bytes that were."""
        changed = 0
        for position, part in written_parts(self, base, start, stop):
            memoryview(self.mapping(base))[position : position + len(part)] = bytes(len(part))
            changed += len(part)
        return changed

    def forget(self, base: int) -> None:
        """Drop the mapping of the file at ``base``, which is about to be moved or to change its size."""
        self._mappings.drop(self.name(base))

    def remove(self, base: int) -> None:
        """Remove the file at ``base``, if it is there. Mappings in use stay valid. Raises StoreReplaced."""
        self._mappings.check_in_place()
        self._mappings.drop(self.name(base))
        self._named.discard(base)
        self.path(base).unlink(missing_ok=True)

    def sync_file(self, base: int) -> None:
        """Make the file at ``base`` durable, and keep it open for its next flush. Raises as ``sync_file``."""
        self._mappings.synced.sync(self.name(base))

    def sync(self, start: int, end: int) -> None:
        """Make bytes ``[start, end)`` durable in those files that exist, and the names of the files.

        Raises as ``sync_file``, and StoreReplaced.
        """
        self._mappings.check_in_place()
        synced = {base for base in self.bases() if base < end and base + self.file_bytes > start}
        for base in sorted(synced):
            with suppress(FileNotFoundError):  # the retention of another process removed it
                sync_file(self.path(base))
        if end > start and not (synced and synced <= self._named):
            sync_directory(self.directory)
            self._named |= synced

    def name(self, base: int) -> str:
        """Return the path of the file that begins at ``base``, as text."""
        return f"{self._prefix}{base:0{layout.FILE_NAME_DIGITS}d}"


def written_begin(files: FileQueue, base: int, position: int) -> int:
    """Return the position at or above ``position`` in the file at ``base`` before which nothing was ever written.

    Raises as :meth:`FileQueue.read`.
    """
    return files.cold.data_begin(files.name(base), files.file_bytes, position)


def written_end(files: FileQueue, base: int) -> int:
    """Return the position in the file at ``base`` from which nothing was ever written.

    Bytes written there with nothing before them are ignored. Raises as :meth:`FileQueue.read`.
    """
    return files.cold.data_end(files.name(base), files.file_bytes, 0)


def written_parts(files: FileQueue, base: int, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
    """Yield (position, bytes) for those parts of bytes ``[start, stop)`` that are not all zero.

    Cold reads find them and skip bytes that were never written. Raises as :meth:`FileQueue.read`.
    """
    name, size, cold = files.name(base), files.file_bytes, files.cold
    buffer = memoryview(b"")
    while start < stop and (start := cold.data_begin(name, size, start)) < stop:
        end = min(cold.data_end(name, size, start), stop, start + _PART_BYTES)
        if len(buffer) < end - start:
            buffer = memoryview(bytearray(end - start))
        part = buffer[: cold.read_into(name, size, start, buffer[: end - start])]
        if not _ZEROS.startswith(part):
            yield start, bytes(part)
        start += len(part)
