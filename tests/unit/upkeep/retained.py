"""Stores that retention works on, and clocks and disks that tests set."""

from __future__ import annotations

from dataclasses import replace

from rmqclient.store import Message, MessageStore
from rmqclient.store.config import RetentionConfig
from rmqclient.store.message_store import MessageStore as Store
from rmqclient.store.settings.disk import Usage
from rmqclient.store.upkeep.retention import Retention
from rmqclient.store.upkeep.retention_rules import Clock, LogFile
from tests.support.stores import SMALL, TOPIC, appender_of

HOUR = 3_600_000
DAY = 24 * HOUR
NOW = 1_700_000_000_000

BODY_BYTES = 2_000
A_FILE = 17
"""Messages of that size in one file of the log."""


def files(old: int, young: int, *, age_ms: int = 2 * HOUR) -> list[LogFile]:
    """Return files of which the first ``old`` ones are past their time."""
    ages = [age_ms] * old + [HOUR - 1] * young
    return [LogFile(number * 4_096, NOW - age) for number, age in enumerate(ages)]


class SetClock(Clock):
    """Clocks that a test sets."""

    def __init__(self, wall_ms: int) -> None:
        self.wall = wall_ms
        self.since_boot = 5 * DAY

    def pass_by(self, elapsed_ms: int) -> None:
        self.wall += elapsed_ms
        self.since_boot += elapsed_ms

    def wall_ms(self) -> int:
        return self.wall

    def boottime_ms(self) -> int:
        return self.since_boot


class Kept:
    """A store whose files were all written now, and a retention that any hour suits."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.written_ms = written_ms(store)
        self.clock = SetClock(self.written_ms + 1_000)
        self.config = replace(SMALL, retention=RetentionConfig(file_reserved_hours=72, delete_hours=tuple(range(24))))
        self.pauses: list[float] = []
        store.disk.usage = lambda: Usage(10.0, 1 << 40)  # type: ignore[method-assign]
        self.retention = self.another()

    def another(self) -> Retention:
        """A housekeeper that starts now."""
        store = self.store
        return Retention(
            replace(store, config=self.config),
            store.index_files,
            store.disk,
            store.compaction,
            store.marks,
            clock=self.clock,
            pause=self.pauses.append,
        )


def written_ms(store: Store) -> int:
    return max(path.stat().st_mtime_ns for path in store.log_files.directory.iterdir()) // 1_000_000


def fill(store: MessageStore, log_files: int) -> None:
    """Append until there are so many files, all but the last one full and durable."""
    appender = appender_of(store)
    while len(store.log_files.bases()) < log_files:
        appender.append(Message(TOPIC, bytes(BODY_BYTES)))
    appender.append_batch([Message(TOPIC, b"one of the newest")] * 3)
    store.flusher.flush_thorough()


def force(store: MessageStore) -> list[int]:
    """Remove every file that may go, as on a disk that is nearly full."""
    store.disk.usage = lambda: Usage(99.0, 0)  # type: ignore[method-assign]
    store.retention._pause = lambda _: None
    removed: list[int] = []
    while found := store.retention.clean():
        removed += found
    return removed
