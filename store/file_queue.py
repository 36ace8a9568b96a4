"""File queue: ordered files of one kind and size, each named by its first byte in 20 digits.

A process keeps a bounded number of mappings, the least recently used goes first; a mapping still in use stays alive
through its references. Linux allows 65,530 mappings a process.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from pathlib import Path
from threading import Lock

from store import layout
from store._kernel import Mapping
from store.mapped_file import allocate, map_copy, map_file, sync_directory, sync_file

_FILE_NAME = re.compile(f"[0-9]{{{layout.FILE_NAME_DIGITS}}}")


class MappingCache:
    """Mappings of one process by path, at most ``limit`` of them.

    With ``any_size`` a file of another size is mapped as a copy of the right one, to be looked at.
    """

    def __init__(self, limit: int, *, writable: bool = True, any_size: bool = False) -> None:
        self._limit = limit
        self._writable = writable
        self._any_size = any_size
        self._mappings: OrderedDict[Path, Mapping] = OrderedDict()
        self._lock = Lock()

    def get(self, path: Path, size: int) -> Mapping:
        """Return the mapping of ``path``, made now when there is none. Raises as :func:`map_file`."""
        with self._lock:
            mapping = self._mappings.get(path)
            if mapping is None:
                mapping = self._mappings[path] = self._map(path, size)
                if len(self._mappings) > self._limit:
                    self._mappings.popitem(last=False)
            else:
                self._mappings.move_to_end(path)
            return mapping

    def _map(self, path: Path, size: int) -> Mapping:
        if self._any_size and path.lstat().st_size != size:
            return map_copy(path, size)
        return map_file(path, size, writable=self._writable)

    def drop(self, path: Path) -> None:
        """Forget ``path``, whose file is about to be removed."""
        with self._lock:
            self._mappings.pop(path, None)

    def clear(self) -> None:
        """Forget all mappings."""
        with self._lock:
            self._mappings.clear()


class FileQueue:
    """The files of one directory. ``base`` is the first byte of a file, a multiple of ``file_bytes``."""

    def __init__(self, directory: Path, file_bytes: int, *, scratch: Path, mappings: MappingCache) -> None:
        self.directory = directory
        self.file_bytes = file_bytes
        self._scratch = scratch
        self._mappings = mappings

    def bases(self) -> list[int]:
        """Return the first byte of every file there, in order; empty when the directory is missing.

        Names that no file of the queue can have are passed over.
        """
        try:
            names = [entry.name for entry in self.directory.iterdir()]
        except FileNotFoundError:
            return []
        bases = [int(name) for name in names if _FILE_NAME.fullmatch(name)]
        return sorted(base for base in bases if base % self.file_bytes == 0)

    def base_of(self, offset: int) -> int:
        """Return the first byte of the file that holds ``offset``."""
        return offset - offset % self.file_bytes

    def path(self, base: int) -> Path:
        """Return the path of the file that begins at ``base``."""
        return self.directory / f"{base:0{layout.FILE_NAME_DIGITS}d}"

    def allocate(self, base: int) -> bool:
        """Make the file at ``base``; False when it is there. Raises StoreFull."""
        return allocate(self.path(base), self.file_bytes, self._scratch)

    def mapping(self, base: int) -> Mapping:
        """Map the file at ``base``. Raises FileNotFoundError, or StoreCorrupt for one of another size."""
        return self._mappings.get(self.path(base), self.file_bytes)

    def forget(self, base: int) -> None:
        """Drop the mapping of the file at ``base``, which is about to be moved or to change its size."""
        self._mappings.drop(self.path(base))

    def remove(self, base: int) -> None:
        """Remove the file at ``base``, if it is there. Mappings in use stay valid."""
        self._mappings.drop(self.path(base))
        self.path(base).unlink(missing_ok=True)

    def sync(self, start: int, end: int) -> None:
        """Make bytes ``[start, end)`` durable in those files that exist, and the names of the files."""
        for base in self.bases():
            if base < end and base + self.file_bytes > start:
                sync_file(self.path(base))
        if end > start:
            sync_directory(self.directory)
