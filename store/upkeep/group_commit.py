"""Group commit: how the log becomes durable, and how senders of all processes wait for it.

A sender that finds the flush mutex free becomes the leader and flushes everything
that is published, its own message and those of all other senders. The other senders sleep on a futex until
``flushed_to`` has passed their message.

A first write to a block that was only reserved changes the extents of the file, and its ``fdatasync`` waits for the
journal of the file system, which takes longer than the write. So when few bytes are flushed at a time, a flush writes
the next pages, too, while they are still zeros (``zeroed_to``), and the flushes after it write into blocks that are the
file's already.

The first error poisons the store for every process: after a failed ``fdatasync`` the kernel may have dropped the dirty
pages, and it reports the next ``fdatasync`` as a success.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from typing import NoReturn

from rmqclient.store import layout
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import (
    DiskFailed,
    LimitReached,
    NotFlushed,
    QueueError,
    StorePoisoned,
    StoreUnusable,
    as_store_error,
)
from rmqclient.store.files.mapped_file import sync_directory
from rmqclient.store.native_threads import threading
from rmqclient.store.parts import Parts

PAGE_BYTES = 4096
ZEROED_BYTES = 256 << 10
"""Bytes behind the log that one flush writes as zeros, for those after it."""
_SMALL_FLUSH_BYTES = 64 << 10
"""A flush of more pays for the journal once for many messages."""

_FLUSHED_TO = layout.RUNTIME_HEADER.at["flushed_to"]
_FLUSH_WORD = layout.RUNTIME_HEADER.at["flush_word"]
_FLUSH_WAITERS = layout.RUNTIME_HEADER.at["flush_waiters"]
_FOLLOWER_SLEEP_MS = 20
_LEADER_STANDS_AFTER_S = 2.0
"""A leader that has not flushed for so long may stand still, and others flush beside it. If it was the housekeeper, its
successor begins to count after up to two and a half seconds, and flushes go on within five all the same."""


class GroupCommit:
    """Flushes the log of one store, for one process."""

    def __init__(self, parts: Parts) -> None:
        self._root = parts.root
        self._check_in_place = parts.lock.check_in_place
        self._state = parts.state
        self._log_files = parts.log_files
        self._lock_timeout_ms = parts.config.lock_timeout_ms
        self._named_to = 0  # files below it have durable names
        self._had_followers = False
        self._leader = (0, 0, 0.0)  # thread, flushed_to, and since when both are seen together
        self._beside_leader = threading.Lock()

    def wait_until_flushed(self, end: int) -> None:
        """Return when every byte below ``end`` is durable.

        Raises StorePoisoned. Raises NotFlushed after the time limit, or if this process has no descriptor for a flush.
        """
        words = self._state.words
        deadline = time.monotonic() + self._lock_timeout_ms / 1000
        nobody_rang = False
        while self._state.flushed_to < end:
            seen = words.load32(_FLUSH_WORD)
            if self._state.poisoned:
                self._raise_poisoned()
            if self._try_to_lead(from_dead=nobody_rang) or self._state.flushed_to >= end:
                continue
            words.store32(_FLUSH_WAITERS, 1)
            nobody_rang = not words.wait(_FLUSH_WORD, seen, _FOLLOWER_SLEEP_MS)
            if time.monotonic() > deadline:
                raise NotFlushed(
                    f"waited {self._lock_timeout_ms} ms for a flush by process {self._state.flush_mutex.process}; "
                    "the message is stored and not yet durable"
                )

    def flush(self, least_pages: int = 0) -> bool:
        """Flush everything published, if at least ``least_pages`` are dirty or a file was finished.

        Returns False if too little was dirty, or another process is flushing. Raises StorePoisoned.
        """
        dirty = self._state.published_to - self._state.flushed_to
        crossed = self._log_files.base_of(self._state.published_to) != self._log_files.base_of(self._state.flushed_to)
        if dirty == 0 or (dirty < least_pages * PAGE_BYTES and not crossed):
            return False
        return self._try_flush()

    def _try_to_lead(self, *, from_dead: bool) -> bool:
        try:
            return self._try_flush(zeroes=True, from_dead=from_dead)
        except (LimitReached, DiskFailed, StoreUnusable) as error:
            raise NotFlushed(f"{error}; the message is stored and not yet durable") from error

    def _try_flush(self, *, zeroes: bool = False, from_dead: bool = True) -> bool:
        """Become the leader and flush, unless another process is the leader.

        ``zeroes``: others will soon wait for flushes, too. ``from_dead``: look whether the leader lives.
        """
        leads = False
        try:
            with self._state.flush_mutex.tried(from_dead=from_dead) as leads:
                if leads:
                    self._flush_published(zeroes=zeroes)
        finally:
            if leads:
                self._wake_followers()
        return leads or self._flush_beside(zeroes=zeroes)

    def _flush_beside(self, *, zeroes: bool) -> bool:
        """Flush beside a leader that stands still: two flushes at once cost time, and a send must not wait for it."""
        if not self._leader_stands() or not self._beside_leader.acquire(blocking=False):
            return False
        try:
            self._flush_published(zeroes=zeroes)
            thread, _, since = self._leader
            self._leader = thread, self._state.flushed_to, since  # it still stands: the next flush need not wait
        finally:
            self._beside_leader.release()
            self._wake_followers()
        return True

    def _leader_stands(self) -> bool:
        thread, flushed_to, since = self._leader
        now = time.monotonic()
        if (thread, flushed_to) != (self._state.flush_mutex.owner, self._state.flushed_to):
            self._leader = self._state.flush_mutex.owner, self._state.flushed_to, now
            return False
        return now - since > _LEADER_STANDS_AFTER_S

    def _flush_published(self, *, zeroes: bool) -> None:
        if self._state.poisoned:
            self._raise_poisoned()
        if self._had_followers:
            os.sched_yield()  # the followers just woken publish their next messages first, so this flush covers them
        start, end = self._state.flushed_to, self._state.published_to
        if zeroes and end > self._state.zeroed_to and end - start < _SMALL_FLUSH_BYTES:
            self._zero_behind(end)
        try:
            self._sync(start, end)
        except OSError as error:
            self.poison(error)
        reach(CrashPoint.FLUSH_SYNCED)
        self._state.raise_word(_FLUSHED_TO, end)

    def _zero_behind(self, end: int) -> None:
        """Let the flush that follows write the pages behind ``end``, too; where this fails, flushes take longer."""
        base = self._log_files.base_of(end)
        begin = -(-(end - base) // PAGE_BYTES) * PAGE_BYTES
        stop = min(begin + ZEROED_BYTES, self._log_files.file_bytes)
        if 0 < begin < stop:  # at 0 the file may be missing
            with suppress(QueueError, OSError):
                self._log_files.mapping(base).populate(begin, stop)
            self._state.zeroed_to = base + stop

    def _sync(self, start: int, end: int) -> None:
        base = self._log_files.base_of(start)
        while base < end:
            self._log_files.sync_file(base)
            base += self._log_files.file_bytes
        if end > self._named_to:
            sync_directory(self._log_files.directory)
            self._named_to = self._log_files.base_of(end) + self._log_files.file_bytes

    def _wake_followers(self) -> None:
        words = self._state.words
        if words.load32(_FLUSH_WAITERS):
            words.store32(_FLUSH_WAITERS, 0)
            words.signal(_FLUSH_WORD)
            self._had_followers = True
        else:
            self._had_followers = False

    def poison(self, error: OSError) -> NoReturn:
        """Let no process believe an append any more after a failed flush. Raises StorePoisoned."""
        if error.errno in (errno.EMFILE, errno.ENFILE):  # the flush has not begun, so none failed
            raise as_store_error(error, f"flushing {self._root} cannot begin") from error
        self._check_in_place()  # a file that is not there because the directory is another one is no failed disk
        self._state.poisoned = error.errno or errno.EIO
        self._wake_followers()
        raise StorePoisoned(
            f"flushing {self._root} failed: {error}; no append is believed any more: look at the disk, then "
            "restart every process that uses the store"
        ) from error

    def _raise_poisoned(self) -> NoReturn:
        raise StorePoisoned(
            f"a flush of {self._root} failed with errno {self._state.poisoned} in some process: look at the disk, then "
            "restart every process that uses the store"
        )
