"""Cold reads: files of the store read by ``pread``, for whoever looks at more of it than what is being used just now.

Through a mapping, a disk that cannot read a page and a file that was shortened end the process with SIGBUS, and
whatever was looked at counts as in use. ``pread`` returns an error instead, here :class:`StoreCorrupt` with the place,
and its pages are the first that the kernel drops. Both see the same bytes: a mapping is shared.

So recovery, ``verify``, ``dump`` and single messages are read by this. Appending and consuming, which are where the
pages are warm, use mappings (store/files/file_queue.py).
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from pathlib import Path
from threading import Lock

from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.files.mapped_file import FileIdentity, is_at, open_file, open_plain

DESCRIPTORS = 16
"""Descriptors kept by default: of the last files that were read from."""


class ColdReads:
    """Reads from files, of which at most ``limit`` stay open; the least recently used is closed first.

    With ``any_size`` what a file lacks reads as zeros, and what stands behind its right size is not looked at.
    """

    def __init__(self, limit: int = DESCRIPTORS, *, any_size: bool = False) -> None:
        self._limit = limit
        self._any_size = any_size
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._lock = Lock()

    def read(self, path: str, size: int, position: int, count: int) -> bytes:
        """Return ``count`` bytes from ``position`` on, fewer only at the end of the file.

        Raises FileNotFoundError, and StoreCorrupt with the place when the file has not ``size`` bytes or a byte cannot
        be read.
        """
        file = self._file(path, size)
        count = max(0, min(count, size - position))
        content = file.read(position, count)
        while len(content) < count:  # a signal, 2 GiB in one call, or a bad page further on
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

        What was reserved and never written to is known to be zero without a look at it. Raises as :meth:`read`.
        """
        return self._file(path, size).seek(position, os.SEEK_DATA, nowhere=size)

    def data_end(self, path: str, size: int, position: int) -> int:
        """Return the first byte at or above ``position`` that is known to be zero, ``size`` when none is."""
        return self._file(path, size).seek(position, os.SEEK_HOLE, nowhere=size)

    def drop(self, path: str) -> None:
        """Forget ``path``, whose file is about to be removed."""
        with self._lock:
            self._files.pop(path, None)

    def release_removed(self) -> None:
        """Close the files that were removed or replaced meanwhile, which keep their blocks while they are open."""
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
                file = self._files[path] = _File(Path(path), size, self._any_size)
                if len(self._files) > self._limit:
                    self._files.popitem(last=False)
            else:
                self._files.move_to_end(path)
            return file


class _File:
    """An open file. It is closed when the last one who reads from it has ended, whoever dropped it meanwhile."""

    def __init__(self, path: Path, size: int, any_size: bool) -> None:
        self._descriptor = -1
        self._path = path
        self._size = size
        self._any_size = any_size
        self._descriptor = open_plain(path, os.O_RDONLY) if any_size else open_file(path, size, os.O_RDONLY)
        # No reading ahead: a look at one entry would fill memory with the file. Who reads on asks for more at once.
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
            content = self.read(
                position, len(buffer)
            )  # which says that the file ends here, or what stands for the rest
            buffer[: len(content)] = content
            return len(content)
        return count

    def seek(self, position: int, whence: int, *, nowhere: int) -> int:
        """SEEK_DATA and SEEK_HOLE of lseek; a file system that knows neither says that all is data."""
        try:
            return os.lseek(self._descriptor, position, whence)
        except OSError as error:
            if error.errno == errno.ENXIO:  # there is no data, or the position is the end
                return nowhere
            if error.errno == errno.EINVAL:
                return position if whence == os.SEEK_DATA else nowhere
            raise StoreCorrupt(self._path, position, f"cannot be read: {error.strerror}") from error
