"""Cold reads: files of the store read by ``pread``, for readers of files that are not in use.

Through a mapping, a page that the disk cannot read, or a file that was shortened, ends the process with SIGBUS, and
every page that was looked at counts as in use. ``pread`` returns an error instead, which becomes :class:`StoreCorrupt`
with the position, and the kernel drops its pages first. Both see the same bytes, because a mapping is shared.

Recovery, ``verify``, ``dump`` and the lookup of single messages read this way. Appending and consuming use mappings
(store/files/file_queue.py), because their pages are warm.
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.files.mapped_file import FileIdentity, is_at, open_file, open_plain
from rmqclient.store.native_threads import threading

DESCRIPTORS = 16
"""Descriptors that are kept open by default, of the files that were read last."""


class ColdReads:
    """Reads from files, of which at most ``limit`` stay open; the least recently used is closed first.

    With ``any_size``, bytes that a file lacks read as zeros, and bytes beyond its right size are ignored.
    ``check_in_place`` is called before a file is opened.
    """

    def __init__(
        self,
        limit: int = DESCRIPTORS,
        *,
        any_size: bool = False,
        check_in_place: Callable[[], None] = lambda: None,
    ) -> None:
        self._check_in_place = check_in_place
        self._limit = limit
        self._any_size = any_size
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, path: str, size: int, position: int, count: int) -> bytes:
        """Return ``count`` bytes from ``position`` on, fewer only at the end of the file.

        Raises FileNotFoundError, and StoreCorrupt with the position when the file does not have ``size`` bytes or a
        byte cannot be read.
        """
        file = self._file(path, size)
        count = max(0, min(count, size - position))
        content = file.read(position, count)
        while len(content) < count:  # A read ends early at a signal, after 2 GiB, or before a bad page further on.
            content += file.read(position + len(content), count - len(content))
        return content

    def read_into(self, path: str, size: int, position: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from ``position`` on, as far as the file goes; return the number of bytes. Raises as read."""
        file = self._file(path, size)
        count, done = max(0, min(len(buffer), size - position)), 0
        while done < count:
            done += file.read_into(position + done, buffer[done:count])
        return count

    def data_begin(self, path: str, size: int, position: int) -> int:
        """Return the first byte at or above ``position`` that may not be zero, ``size`` when all that follow are.

        Bytes that were reserved and never written are known to be zero without reading them. Raises as :meth:`read`.
        """
        return self._file(path, size).seek(position, os.SEEK_DATA, nowhere=size)

    def data_end(self, path: str, size: int, position: int) -> int:
        """Return the first byte at or above ``position`` that is known to be zero, or ``size``."""
        return self._file(path, size).seek(position, os.SEEK_HOLE, nowhere=size)

    def drop(self, path: str) -> None:
        """Forget ``path``, whose file is about to be removed."""
        with self._lock:
            self._files.pop(path, None)

    def release_removed(self) -> None:
        """Close the files that were removed or replaced. An open file keeps its blocks on the disk."""
        with self._lock:
            for path in [path for path, file in self._files.items() if not is_at(path, file.identity())]:
                del self._files[path]

    def clear(self) -> None:
        """Close all files."""
        with self._lock:
            self._files.clear()

    def _file(self, path: str, size: int) -> _File:
        with self._lock:
            file = self._files.get(path)
            if file is None:
                self._check_in_place()
                file = self._files[path] = _File(Path(path), size, self._any_size)
                if len(self._files) > self._limit:
                    self._files.popitem(last=False)
            else:
                self._files.move_to_end(path)
            return file


class _File:
    """An open file. It is closed when its last reader has finished, even if it was dropped before."""

    def __init__(self, path: Path, size: int, any_size: bool) -> None:
        self._descriptor = -1
        self._path = path
        self._size = size
        self._any_size = any_size
        self._descriptor = open_plain(path, os.O_RDONLY) if any_size else open_file(path, size, os.O_RDONLY)
        # No reading ahead: reading one entry would fill memory with the file. Sequential readers ask for more at once.
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def identity(self) -> FileIdentity:
        """Return which file it is."""
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self, position: int, count: int) -> bytes:
        """Return at least one byte, if ``count`` is not 0."""
        try:
            content = os.pread(self._descriptor, count, position)
        except OSError as error:
            raise StoreCorrupt(self._path, position, f"cannot be read: {error.strerror}") from error
        if count and not content:
            if self._any_size:
                return bytes(count)
            raise StoreCorrupt(self._path, position, f"the file ends here and was opened with {self._size} bytes")
        return content

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Put at least one byte into ``buffer``, if there is room; return how many. Raises as :meth:`read`."""
        try:
            count = os.preadv(self._descriptor, [buffer], position)
        except OSError as error:
            raise StoreCorrupt(self._path, position, f"cannot be read: {error.strerror}") from error
        if not count:
            content = self.read(position, len(buffer))  # raises that the file ends here, or returns zeros for the rest
            buffer[: len(content)] = content
            return len(content)
        return count

    def seek(self, position: int, whence: int, *, nowhere: int) -> int:
        """SEEK_DATA and SEEK_HOLE of lseek; a file system that supports neither reports everything as data."""
        try:
            return os.lseek(self._descriptor, position, whence)
        except OSError as error:
            if error.errno == errno.ENXIO:  # there is no data, or the position is the end
                return nowhere
            if error.errno == errno.EINVAL:
                return position if whence == os.SEEK_DATA else nowhere
            raise StoreCorrupt(self._path, position, f"cannot be read: {error.strerror}") from error
