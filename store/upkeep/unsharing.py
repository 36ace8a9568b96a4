"""Unsharing: gives the files that are being written blocks of their own, after somebody made a clone or a snapshot.

A look a second finds that, and one when the store is opened. A disk without room for it is full: appends are refused
before they store into a page that needs a block. The runtime file comes first, because every process stores into it,
whatever the disk level. The log comes last: while it shares blocks, the files before it are looked at again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from rmqclient.store import layout
from rmqclient.store.errors import StoreFull
from rmqclient.store.files.own_blocks import (
    can_share,
    give_own_blocks,
    give_up_reserve,
    keep_reserve,
    shares_blocks,
)
from rmqclient.store.log.index_file import IndexFiles
from rmqclient.store.parts import Parts
from rmqclient.store.runtime.shared_state import FILE_NAME
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class Unsharing:
    """Looks at the mapped files of one store, for one process. Safe for threads."""

    def __init__(self, parts: Parts, index_files: IndexFiles) -> None:
        self._parts = parts
        self._index_files = index_files
        self._can_share = can_share(parts.root)

    def look(self) -> None:
        """Raise StoreFull if a file shares blocks, and there is no room for its own."""
        if not self._can_share:
            return
        if self._was_cloned():
            self._unshare()
        keep_reserve(self._parts.root)

    def _unshare(self) -> None:
        root, files = self._parts.root, self._parts.log_files
        self._unshare_runtime_file()
        self._unshare_queues()
        newest = self._index_files.newest()
        if newest is not None:
            give_own_blocks(newest.path, newest.mapping)
        for base in self._written():
            give_own_blocks(files.path(base), files.mapping(base))
        _log.info("files of %s shared blocks with a clone or a snapshot, and have their own again", root)

    def _unshare_runtime_file(self) -> None:
        path, mapping = self._parts.root / FILE_NAME, self._parts.state.mapping
        try:
            give_own_blocks(path, mapping)
        except StoreFull:
            give_up_reserve(self._parts.root)
            give_own_blocks(path, mapping)

    def _was_cloned(self) -> bool:
        """Tell it by the files that are always there: who clones one file clones all."""
        log = map(self._parts.log_files.path, self._written())
        return any(map(shares_blocks, (self._parts.root / FILE_NAME, *log)))

    def _written(self) -> Iterator[int]:
        """Yield the commit log files that are written now and next."""
        files = self._parts.log_files
        written = files.base_of(self._parts.state.published_to)
        return (base for base in files.bases() if base >= written)

    def _unshare_queues(self) -> None:
        topics, consume_queues = self._parts.topics, self._parts.consume_queues
        for queue in topics.all_queues():
            consume_queue = consume_queues[queue]
            base = consume_queue.first_entry_of(topics.max_offset(queue)) * layout.CONSUME_QUEUE_ENTRY.size
            path = consume_queue.files.path(base)
            with suppress(FileNotFoundError):  # nothing was sent to it yet
                if shares_blocks(path):
                    give_own_blocks(path, consume_queue.files.mapping(base))
