"""Settings of one store. Each number has its unit in its name.

Settings marked **fixed** are written to ``<root>/store.json`` when the directory is made. Opening the directory with
other values raises :class:`rmqclient.store.errors.ConfigMismatch`. RocketMQ's name of a setting is in brackets.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from rmqclient.store import bodies, layout
from rmqclient.store.numbers import MOST_BYTES, MOST_INT, MOST_MS, check_switches, check_whole, fraction, whole

_KIB = 1024
_MIB = 1024 * _KIB
_MOST_HOURS = 1_000_000


class Durability(enum.Enum):
    """What a send has promised by the time it returns. [flushDiskType]"""

    ASYNC = "async"  #: in the page cache: survives ``kill -9`` of any process, not a power cut
    SYNC = "sync"  #: on the disk, sharing one flush with every other send that waits for it


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushConfig:
    """When the housekeeper makes ASYNC sends durable. Raises ValueError for an interval below 1 ms or above ten years.

    How many dirty pages a flush waits for is fixed: see :mod:`rmqclient.store.upkeep.flush`.
    """

    interval_ms: int = 500
    """Interval of the flush that takes the log once enough of its pages are dirty. [flushIntervalCommitLog]"""

    thorough_interval_ms: int = 10_000
    """Interval of the flush that takes the log however little is dirty. [flushCommitLogThoroughInterval]"""

    queues_interval_ms: int = 60_000
    """Interval of the flush that takes every consume queue. Recovery reads the log from the last such flush on.
    [flushConsumeQueueThoroughInterval]"""

    def __post_init__(self) -> None:
        check_whole(self, "interval_ms", "thorough_interval_ms", "queues_interval_ms", most=MOST_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionConfig:
    """Which files the housekeeper removes, and how full the disk may get.

    Raises TypeError or ValueError for what is invalid.
    """

    file_reserved_hours: int = 72
    """Age at which a commit log file may be removed, by its newest message. [fileReservedTime]"""

    delete_hours: tuple[int, ...] = (4,)
    """Hours of the local day, 0 to 23, in which files of that age are removed. [deleteWhen]"""

    disk_max_used_percent: int = 75
    """Above this usage, files of that age are removed at any hour. [diskMaxUsedSpaceRatio]"""

    disk_clean_forcibly_percent: int = 85
    """Above this usage, the oldest files are removed **whatever their age, consumed or not**.
    [diskSpaceCleanForciblyRatio]"""

    clean_forcibly: bool = True
    """Whether ``disk_clean_forcibly_percent`` applies. If False, a full disk stops the senders instead.
    [cleanFileForciblyEnable]"""

    disk_full_percent: int = 90
    """Above this usage, appends raise ``StoreFull``; consumers go on. 100 for never. [diskSpaceWarningLevelRatio]"""

    disk_reserve_bytes: int = 0
    """Appends also raise ``StoreFull`` while the file system has fewer free bytes than this."""

    interval_ms: int = 10_000
    """Interval between retention passes. [cleanResourceInterval]"""

    def __post_init__(self) -> None:
        check_whole(self, "file_reserved_hours", most=_MOST_HOURS)
        check_whole(self, "interval_ms", most=MOST_MS)
        check_whole(self, "disk_reserve_bytes", least=0, most=MOST_BYTES)
        check_whole(self, "disk_max_used_percent", "disk_clean_forcibly_percent", "disk_full_percent", most=100)
        check_switches(self, "clean_forcibly")
        if not self.delete_hours:
            raise ValueError(f"delete_hours={self.delete_hours!r}: give hours from 0 to 23 such as (4,) or (4, 16)")
        for hour in self.delete_hours:
            whole("delete_hours", hour, 0, 23)
        levels = (self.disk_max_used_percent, self.disk_clean_forcibly_percent, self.disk_full_percent)
        if not 1 <= levels[0] <= levels[1] <= levels[2] <= 100:
            raise ValueError(
                f"disk_max_used_percent={levels[0]}, disk_clean_forcibly_percent={levels[1]}, "
                f"disk_full_percent={levels[2]}: must not fall, and lie between 1 and 100"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """When the queues of compact topics are compacted. Raises TypeError or ValueError for what is invalid."""

    interval_ms: int = 15_000
    """Interval between looks for queues to compact. [Kafka's log.cleaner.backoff.ms]"""

    min_cleanable_dirty_ratio: float = 0.5
    """A queue is compacted when this part of its messages is new since the last pass, and in any case before its
    commit log files are removed. [Kafka's min.cleanable.dirty.ratio]"""

    delete_retention_ms: int = 86_400_000
    """How long the tombstone of a key stays after the pass that first met it, for readers that have seen an older
    value. [Kafka's delete.retention.ms]"""

    def __post_init__(self) -> None:
        check_whole(self, "interval_ms", most=MOST_MS)
        check_whole(self, "delete_retention_ms", least=0, most=MOST_MS)
        fraction("min_cleanable_dirty_ratio", self.min_cleanable_dirty_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """How undecided half messages are followed up. Raises TypeError or ValueError for what is invalid."""

    timeout_ms: int = 6_000
    """How old an undecided half message is before its producers are asked, if it does not say so itself.
    [transactionTimeOut]"""

    check_interval_ms: int = 60_000
    """Interval between looks for undecided half messages. [transactionCheckInterval]"""

    check_max: int = 15
    """How often the producers are asked about a half message before it is given up. [transactionCheckMax]"""

    def __post_init__(self) -> None:
        check_whole(self, "timeout_ms", "check_interval_ms", most=MOST_MS)
        check_whole(self, "check_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Settings of a store; the defaults suit one host and small directories.

    Raises TypeError or ValueError for what is invalid.
    """

    commit_log_file_bytes: int = 64 * _MIB
    """Size of each commit log file. **Fixed.** [mappedFileSizeCommitLog]"""

    consume_queue_file_entries: int = 30_000
    """Entries of 20 bytes in each consume queue file. **Fixed.** [mappedFileSizeConsumeQueue / 20]

    A file is reserved in full, 600 KB by default, so that 10,000 queues take 6 GB of disk from their first messages on.
    """

    index_slots: int = 100_000
    """Hash slots in each index file. **Fixed.** [maxHashSlotNum]"""

    index_entries: int = 400_000
    """Room for entries in each index file; the first is never used. **Fixed.** [maxIndexNum]"""

    message_index: bool = True
    """Whether this process, as the housekeeper, keeps the index up to date; a query does so in any case.
    [messageIndexEnable]"""

    max_body_bytes: int = 4 * _MIB
    """Longest body accepted. [maxMessageSize]"""

    max_opened_body_bytes: int = bodies.DEFAULT_LIMIT
    """Longest body that a compressed one may open to; reading a message that opens to more raises
    ``BodyUnreadable``."""

    durability: Durability = Durability.ASYNC
    """What a send waits for. [flushDiskType]"""

    commit_interval_ms: int = 200
    """Longest time a message stays in the write buffer of a producer that has one. [commitIntervalCommitLog]"""

    offset_persist_interval_ms: int = 5_000
    """Interval at which ``consumerOffset.json`` is written. [flushConsumerOffsetInterval]"""

    lock_timeout_ms: int = 5_000
    """How long an append waits for the lock of another process before it raises ``StoreBusy``."""

    page_cache_busy_timeout_ms: int = 1_000
    """How long one append may keep the lock before the others raise ``PageCacheBusy``. [osPageCacheBusyTimeOutMills]"""

    warm_mapped_files: bool = False
    """Whether the housekeeper fills the page cache for the next commit log file when it makes the file. Appends then
    never wait for a page to be made; the next flush writes the whole file once more. [warmMapedFileEnable]"""

    default_queue_count: int = 4
    """Queues of a topic that is made by its first message. [defaultTopicQueueNums]"""

    max_mapped_files: int = 32_768
    """Mappings one process keeps, half of what Linux allows it; the least recently used goes first."""

    allow_network_file_system: bool = False
    """Accept a directory on NFS, SMB, 9p or FUSE. Only for file systems on which processes are known to share mapped
    files and locks."""

    flush: FlushConfig = field(default_factory=FlushConfig)
    """When ASYNC sends become durable."""

    retention: RetentionConfig = field(default_factory=RetentionConfig)
    """Which files are removed, and how full the disk may get."""

    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    """When the queues of compact topics are compacted."""

    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    """How undecided half messages are followed up."""

    def __post_init__(self) -> None:
        check_whole(self, "consume_queue_file_entries", most=MOST_INT // layout.CONSUME_QUEUE_ENTRY.size)
        check_whole(self, "commit_log_file_bytes", "max_body_bytes", "max_opened_body_bytes", "max_mapped_files")
        check_whole(self, "default_queue_count", most=1_024)
        check_whole(self, "commit_interval_ms", "offset_persist_interval_ms", most=MOST_MS)
        check_whole(self, "lock_timeout_ms", "page_cache_busy_timeout_ms", most=MOST_MS)
        check_switches(self, "message_index", "warm_mapped_files", "allow_network_file_system")
        self._check_kinds()
        self._check_commit_log_file()
        self._check_index_file()

    def _check_kinds(self) -> None:
        kinds: tuple[tuple[str, type], ...] = (
            ("durability", Durability),  # the text of one is none, and would mean ASYNC
            ("flush", FlushConfig),
            ("retention", RetentionConfig),
            ("compaction", CompactionConfig),
            ("transactions", TransactionConfig),
        )
        for name, kind in kinds:
            given = getattr(self, name)
            if not isinstance(given, kind):
                known = "Durability.ASYNC or Durability.SYNC" if kind is Durability else f"{kind.__name__}(...)"
                raise TypeError(f"{name}={given!r}: give {known}")

    def _check_commit_log_file(self) -> None:
        smallest = self.max_body_bytes + layout.MAX_RECORD_OVERHEAD + layout.BLANK_RECORD.size
        if self.commit_log_file_bytes < smallest:
            raise ValueError(
                f"commit_log_file_bytes={self.commit_log_file_bytes} cannot hold one message of "
                f"max_body_bytes={self.max_body_bytes}: needs at least {smallest}"
            )

    def _check_index_file(self) -> None:
        check_whole(self, "index_slots")
        check_whole(self, "index_entries", least=2)  # the first is never used
        if self.index_file_bytes > MOST_INT:
            raise ValueError(
                f"index_slots={self.index_slots} and index_entries={self.index_entries} make files of "
                f"{self.index_file_bytes} bytes: RocketMQ maps at most {MOST_INT}"
            )

    @property
    def consume_queue_file_bytes(self) -> int:
        """Size of each consume queue file in bytes."""
        return self.consume_queue_file_entries * layout.CONSUME_QUEUE_ENTRY.size

    @property
    def index_file_bytes(self) -> int:
        """Size of each index file in bytes."""
        slots = self.index_slots * layout.INDEX_SLOT_SIZE
        return layout.INDEX_HEADER.size + slots + self.index_entries * layout.INDEX_ENTRY.size

    @classmethod
    def small(cls) -> StoreConfig:
        """Files for tests, small devices and stores of a few messages: about 25 MB of disk instead of 90.

        A body has at most 1 MiB, and a commit log file 4 MiB, so retention removes messages in smaller steps.
        """
        return cls(
            commit_log_file_bytes=4 * _MIB,
            max_body_bytes=_MIB,
            consume_queue_file_entries=1_000,
            index_slots=1_000,
            index_entries=4_000,
        )

    @classmethod
    def broker_defaults(cls) -> StoreConfig:
        """The file sizes of a stock RocketMQ 4.9 broker: 1 GiB, 300,000 entries, an index of 20,000,000 entries."""
        return cls(
            commit_log_file_bytes=1024 * _MIB,
            consume_queue_file_entries=300_000,
            index_slots=5_000_000,
            index_entries=20_000_000,
        )
