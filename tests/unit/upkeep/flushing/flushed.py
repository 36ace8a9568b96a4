"""A store with SYNC durability, and a disk that counts and fails."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient import Producer
from rmqclient.store import Durability, MessageStore, StoreConfig
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.settings import checkpoint
from rmqclient.store.upkeep import group_commit
from tests.support.stores import SMALL

SYNC = replace(SMALL, durability=Durability.SYNC)


def producer_of(store: MessageStore, config: StoreConfig = SYNC) -> Producer:
    return Producer(store, config=config)


class Disk:
    """Stands between the flusher and ``fdatasync``: counts, fails on demand, or holds a flush up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.flushes: list[str] = []
        self.fail_at: int | None = None
        self.entered = threading.Semaphore(0)
        self.may_leave: threading.Semaphore | None = None
        monkeypatch.setattr(FileQueue, "sync_file", lambda files, base: self._sync(files.path(base)))
        monkeypatch.setattr(group_commit, "sync_directory", self._sync)

    def _sync(self, path: Path) -> None:
        self.flushes.append(path.name)
        if len(self.flushes) == self.fail_at:
            raise OSError(errno.EIO, "the disk is broken")
        self.entered.release()
        if self.may_leave is not None:
            assert self.may_leave.acquire(timeout=60)


def started(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def mark(store: MessageStore) -> checkpoint.LowWater:
    _, found = checkpoint.read(store.root)
    assert found is not None
    return found


def queue_of(store: MessageStore) -> range:
    (queue,) = store.topics.queues("t")
    return range(store.topics.max_offset(queue))
