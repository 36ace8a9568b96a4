"""Retention rules: which commit log files go, from their ages, the hour and how full the disk is.

The decision is pure: :func:`due`. [DefaultMessageStore.CleanCommitLogService]

Clocks. A file is as old as the newest of its time of modification and the store times at its begin and behind its
end. An implausible age is not believed: then one process must have watched the file for the whole reserved time, on a
clock that does not step (docs/decisions/0007-a-clock-that-jumps-deletes-nothing.md).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rmqclient.store import clock
from rmqclient.store.config import RetentionConfig
from rmqclient.store.log.record import Record, decode
from rmqclient.store.parts import Parts
from rmqclient.store.settings import checkpoint
from rmqclient.store.settings.disk import Disk

FILES_A_PASS = 10
"""[deleteFileBatchMax]"""
LONGEST_BELIEVED_MS = 30 * 86_400_000
"""If a file is older than the reserved time by more than this, a clock jumped, or no process cleaned for long."""

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class LogFile:
    """A commit log file that may be removed."""

    base: int
    newest_ms: int
    """Latest possible time of its last message, by the wall clock of that time."""
    watched_ms: int = 0
    """How long this process has known it to be finished, on a clock that does not step."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What decides besides the files."""

    now_ms: int
    hour: int
    """Of the local day."""
    used_percent: float
    """Of the file system."""
    requested: bool = False
    """A person asked for this pass: old files go at any hour, and the clock is believed."""
    is_believed: bool = True
    """False if, by the clock, the whole store had outlived its time when this process opened it."""


def removable(bases: Sequence[int], file_bytes: int, published_to: int, durable_to: int) -> list[int]:
    """Return all files but the newest that are published and durable to their end, oldest first."""
    end = min(published_to, durable_to)
    return [base for base in bases[:-1] if base + file_bytes <= end]


def due(files: Iterable[LogFile], moment: Moment, config: RetentionConfig) -> list[int]:
    """Return the first byte of each file to remove now, oldest first; ``files`` is read only as far as needed."""
    is_nearly_full = moment.used_percent > config.disk_clean_forcibly_percent
    at_once = config.clean_forcibly and is_nearly_full and not moment.requested
    is_time = (
        moment.requested or moment.hour in config.delete_hours or moment.used_percent > config.disk_max_used_percent
    )
    found: list[int] = []
    if at_once or is_time:
        for file in files:
            if not (at_once or is_old(file, moment, config)):
                break
            found.append(file.base)
            if len(found) == FILES_A_PASS:
                break
    return found


def is_old(file: LogFile, moment: Moment, config: RetentionConfig) -> bool:
    """Tell whether a file has certainly outlived the reserved time."""
    reserved = config.file_reserved_hours * _HOUR_MS
    age = moment.now_ms - file.newest_ms
    if file.watched_ms >= reserved:
        return True
    if moment.requested:
        return age >= reserved
    return moment.is_believed and reserved <= age <= reserved + LONGEST_BELIEVED_MS


class Clock:
    """The wall clock, and one that does not step."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, as far as the host knows."""
        return clock.wall_ms()

    def boottime_ms(self) -> int:
        """Milliseconds that count the time of a suspended machine, and never step."""
        return clock.elapsed_ns() // 1_000_000


class Candidates:
    """The commit log files of one store that may go, and their ages, as one process has watched them."""

    def __init__(self, parts: Parts, disk: Disk, clock: Clock) -> None:
        self._state = parts.state
        self._log_files = parts.log_files
        self._disk = disk
        self._clock = clock
        self._began = (clock.wall_ms(), clock.boottime_ms())
        self._is_believed = (
            self._newest_write_ms() >= self._began[0] - parts.config.retention.file_reserved_hours * _HOUR_MS
        )
        self._finished_since: dict[int, int] = {}

    def due(self, config: RetentionConfig, *, requested: bool) -> list[int]:
        """Return the first byte of each file to remove now, oldest first."""
        return due(self.files(), self._moment(requested), config)

    def files(self) -> Iterator[LogFile]:
        """Return the files that are published and durable to their end, oldest first, each looked at when it comes."""
        files = self._log_files
        bases = removable(files.bases(), files.file_bytes, self._state.published_to, self._durable_to())
        now = self._clock.boottime_ms()
        self._finished_since = {base: self._finished_since.get(base, now) for base in bases}
        return (LogFile(base, self._newest_ms(base), now - since) for base, since in self._finished_since.items())

    def _moment(self, requested: bool) -> Moment:
        wall, (began_wall, began_boottime) = self._clock.wall_ms(), self._began
        stepless = began_wall + self._clock.boottime_ms() - began_boottime
        return Moment(
            now_ms=min(wall, stepless),  # a clock set forward while this process runs makes no file older
            hour=datetime.datetime.fromtimestamp(wall / 1000).astimezone().hour,
            used_percent=self._disk.usage().used_percent,
            requested=requested,
            is_believed=self._is_believed,
        )

    def _durable_to(self) -> int:
        """Return how far records and their entries are on disk: lost entries are made again from records."""
        _, low_water = checkpoint.read(self._log_files.directory.parent)
        return min(self._state.flushed_to, low_water.dispatched_to if low_water else 0)

    def _newest_ms(self, base: int) -> int:
        """Return the latest possible time of the last message of a finished file."""
        try:
            modified = self._log_files.path(base).stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return 0  # removed by another process meanwhile
        behind = base + self._log_files.file_bytes
        return max(modified, self._store_timestamp(base), self._store_timestamp(behind))

    def _store_timestamp(self, base: int) -> int:
        try:
            first = decode(self._log_files.mapping(base), 0, base)
        except FileNotFoundError:
            return 0
        return first.message.store_timestamp if isinstance(first, Record) else 0

    def _newest_write_ms(self) -> int:
        bases = self._log_files.bases()
        if not bases:
            return self._began[0]
        modified = self._log_files.path(bases[-1]).stat().st_mtime_ns // 1_000_000
        return max(modified, self._state.last_store_timestamp)
