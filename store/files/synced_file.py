"""Synced file: makes files durable, and keeps the last one open for its next flush.

Senders with SYNC durability flush one file thousands of times a second, and opening and closing it took them an eighth
of the time between two flushes. A descriptor that stays open is also told of more: Linux reports a failed write-back to
each descriptor that was open then [errseq_t].
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rmqclient.store.files import fork
from rmqclient.store.files.mapped_file import open_to_sync
from rmqclient.store.native_threads import threading


class SyncedFile:
    """The file that this process made durable last. Safe for threads; a flush holds up the others."""

    def __init__(self, check_in_place: Callable[[], None] = lambda: None) -> None:
        self._check_in_place = check_in_place
        self._path = ""
        self._name: Path | None = None
        self._descriptor = -1
        self._lock = threading.Lock()
        fork.register(self)

    def sync(self, path: str) -> None:
        """Make the pages of the file at ``path`` durable. Raises as ``sync_file``, also when it is there no more.

        Raises StoreReplaced when its directory is another one now.

        A file that has taken the place of the one that is open is seen after :meth:`release_removed`.
        """
        with self._lock:
            # Not by its status: with a look at that before each flush, sends were slower than with an opening. Linux
            # then gives the next change an exact time of its own [multigrain timestamps], which may be why.
            if path != self._path or not os.access(path, os.F_OK):
                self._open(path)
            os.fdatasync(self._descriptor)

    def release_removed(self) -> None:
        """Close the file if it was removed or replaced. An open file keeps its blocks on the disk."""
        with self._lock:
            name = _name_of(self._descriptor)
            if name is None or name != self._name:
                self._close()

    def close(self) -> None:
        """Close the file; the next flush opens one again."""
        with self._lock:
            self._close()

    def leave_to_parent(self) -> None:
        """Close the copy of the descriptor in a forked child."""
        self._lock = threading.Lock()
        self._close()

    def __del__(self) -> None:
        self._close()

    def _open(self, path: str) -> None:
        self._close()
        self._check_in_place()
        with fork.held_off:
            self._descriptor = open_to_sync(Path(path), os.O_RDONLY)
        self._path, self._name = path, _name_of(self._descriptor)

    def _close(self) -> None:
        descriptor, self._descriptor, self._path = self._descriptor, -1, ""
        if descriptor >= 0:
            os.close(descriptor)


def _name_of(descriptor: int) -> Path | None:
    """Return the present name of an open file, which says so when it was removed; None where nothing tells it."""
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    except OSError:
        return None
