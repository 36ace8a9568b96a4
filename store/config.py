"""Settings of one store. The unit of a number is in its name.

Settings marked **fixed** are written to ``<root>/store.json`` when the directory is made; opening it
with other values raises :class:`rmqclient.store.errors.ConfigMismatch`. RocketMQ's name is in brackets.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from rmqclient.store import bodies, layout

_KIB = 1024
_MIB = 1024 * _KIB


class Durability(enum.Enum):
    """What a send has promised by the time it returns. [flushDiskType]"""

    ASYNC = "async"  #: in the page cache: survives ``kill -9`` of any process, not a power cut
    SYNC = "sync"  #: on the disk, sharing one flush with every other send that waits for it


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Settings of a store; the defaults suit one host and small directories."""

    commit_log_file_bytes: int = 64 * _MIB
    """Size of each commit log file. **Fixed.** [mappedFileSizeCommitLog]"""

    consume_queue_file_entries: int = 30_000
    """Entries of 20 bytes in each consume queue file. **Fixed.** [mappedFileSizeConsumeQueue / 20]

    A file is reserved in full, 600 KB by default, so that 10,000 queues take 6 GB of disk from their first messages on.
    """

    index_slots: int = 100_000
    """Hash slots in each index file. **Fixed.** [maxHashSlotNum]"""

    index_entries: int = 400_000
    """Room for entries in each index file; one is never used. **Fixed.** [maxIndexNum]"""

    message_index: bool = True
    """Whether this process, as the housekeeper, keeps the index up to date; a query does it in any case.
    [messageIndexEnable]"""

    max_body_bytes: int = 4 * _MIB
    """Longest body accepted. [maxMessageSize]"""

    max_opened_body_bytes: int = bodies.DEFAULT_LIMIT
    """What a compressed body may open to: reading a message raises ``BodyUnreadable`` beyond it."""

    durability: Durability = Durability.ASYNC
    """What a send waits for. [flushDiskType]"""

    flush_interval_ms: int = 500
    """Longest time an ASYNC send stays in the page cache alone. [flushIntervalCommitLog]"""

    flush_least_pages: int = 4
    """An ASYNC flush with fewer dirty pages waits for the thorough one. [flushCommitLogLeastPages]"""

    flush_thorough_interval_ms: int = 10_000
    """Interval of the flush that takes whatever there is. [flushCommitLogThoroughInterval]"""

    consume_queue_flush_interval_ms: int = 1_000
    """Interval of the flush of consume queues. [flushIntervalConsumeQueue]"""

    consume_queue_flush_least_pages: int = 2
    """A consume queue with fewer dirty pages waits for the thorough flush. [flushConsumeQueueLeastPages]"""

    consume_queue_flush_thorough_interval_ms: int = 60_000
    """Interval of the flush that takes every consume queue; recovery reads the log from the last one on.
    [flushConsumeQueueThoroughInterval]"""

    commit_interval_ms: int = 200
    """Longest time a message stays in the write buffer of a producer that has one. [commitIntervalCommitLog]"""

    offset_persist_interval_ms: int = 5_000
    """How often ``consumerOffset.json`` is written. [flushConsumerOffsetInterval]"""

    lock_timeout_ms: int = 5_000
    """How long an append waits for the lock of another process before it raises ``StoreBusy``."""

    page_cache_busy_timeout_ms: int = 1_000
    """How long one append may keep the lock before the others raise ``PageCacheBusy``. [osPageCacheBusyTimeOutMills]"""

    warm_mapped_files: bool = False
    """Whether the housekeeper fills the page cache for the next commit log file when it makes it. Appends then never
    wait for a page to be made; the next flush writes the whole file once more. [warmMapedFileEnable]"""

    default_queue_count: int = 4
    """Queues of a topic that is made by its first message. [defaultTopicQueueNums]"""

    max_mapped_files: int = 32_768
    """Mappings one process keeps, half of what Linux allows it; the least recently used goes first."""

    allow_network_file_system: bool = False
    """Use a directory on NFS, SMB, 9p or FUSE, too: only where processes are known to share mapped files and locks."""

    file_reserved_hours: int = 72
    """Age at which a commit log file may be removed, by its newest message. [fileReservedTime]"""

    delete_when: str = "04"
    """Hours of the local day in which files of that age are removed, ``;`` between several. [deleteWhen]"""

    disk_max_used_percent: int = 75
    """Above it files of that age are removed at any hour. [diskMaxUsedSpaceRatio]"""

    disk_clean_forcibly_percent: int = 85
    """Above it the oldest files are removed **whatever their age, consumed or not**. [diskSpaceCleanForciblyRatio]"""

    clean_file_forcibly: bool = True
    """Whether that is done; without it a disk that runs full stops the senders instead. [cleanFileForciblyEnable]"""

    disk_full_percent: int = 90
    """Above it appends raise ``StoreFull``; consumers go on. 100 for never. [diskSpaceWarningLevelRatio]"""

    disk_reserve_bytes: int = 0
    """Appends raise ``StoreFull`` also while the file system has fewer free bytes than this."""

    clean_resource_interval_ms: int = 10_000
    """How often it is looked for files to remove. [cleanResourceInterval]"""

    delete_retention_ms: int = 86_400_000
    """How long a compact topic keeps the tombstone of a key after the pass that first met it, for readers that have
    seen an older value. [Kafka's delete.retention.ms]"""

    min_cleanable_dirty_ratio: float = 0.5
    """A queue of a compact topic is compacted when this part of its messages is new since the last time; in any case
    before its commit log files are removed. [Kafka's min.cleanable.dirty.ratio]"""

    compaction_interval_ms: int = 15_000
    """How often it is looked for queues to compact. [Kafka's log.cleaner.backoff.ms]"""

    transaction_timeout_ms: int = 6_000
    """How old an undecided half message is before its producers are asked, if it does not say so itself.
    [transactionTimeOut]"""

    transaction_check_interval_ms: int = 60_000
    """How often undecided half messages are looked for. [transactionCheckInterval]"""

    transaction_check_max: int = 15
    """How often the producers are asked about one before it is given up. [transactionCheckMax]"""

    def __post_init__(self) -> None:
        smallest = self.max_body_bytes + layout.MAX_RECORD_OVERHEAD + layout.BLANK_RECORD.size
        if self.commit_log_file_bytes < smallest:
            raise ValueError(
                f"commit_log_file_bytes={self.commit_log_file_bytes} cannot hold one message of "
                f"max_body_bytes={self.max_body_bytes}: needs at least {smallest}"
            )
        if self.commit_log_file_bytes > 2**31 - 1:
            raise ValueError(
                f"commit_log_file_bytes={self.commit_log_file_bytes}: RocketMQ keeps it in 32 bits, at most {2**31 - 1}"
            )
        for name in (
            "consume_queue_file_entries",
            "index_slots",
            "max_body_bytes",
            "max_opened_body_bytes",
            "flush_interval_ms",
            "flush_thorough_interval_ms",
            "consume_queue_flush_interval_ms",
            "consume_queue_flush_thorough_interval_ms",
            "commit_interval_ms",
            "offset_persist_interval_ms",
            "lock_timeout_ms",
            "page_cache_busy_timeout_ms",
            "default_queue_count",
            "max_mapped_files",
            "file_reserved_hours",
            "clean_resource_interval_ms",
            "compaction_interval_ms",
            "transaction_timeout_ms",
            "transaction_check_interval_ms",
            "transaction_check_max",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1")
        if self.index_entries < 2:
            raise ValueError(f"index_entries={self.index_entries}: must be at least 2, because the first is never used")
        if self.index_file_bytes > 2**31 - 1:
            raise ValueError(
                f"index_slots={self.index_slots} and index_entries={self.index_entries} make files of "
                f"{self.index_file_bytes} bytes: RocketMQ maps at most {2**31 - 1}"
            )
        if not 0 <= self.min_cleanable_dirty_ratio < 1:
            raise ValueError(
                f"min_cleanable_dirty_ratio={self.min_cleanable_dirty_ratio}: must be at least 0 and below 1"
            )
        for name in (
            "flush_least_pages",
            "consume_queue_flush_least_pages",
            "disk_reserve_bytes",
            "delete_retention_ms",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)}: must not be negative")
        if not all(hour.isascii() and hour.isdigit() and int(hour) < 24 for hour in self.delete_when.split(";")):
            raise ValueError(f"delete_when={self.delete_when!r}: give hours from 00 to 23 such as '04' or '04;16'")
        levels = (self.disk_max_used_percent, self.disk_clean_forcibly_percent, self.disk_full_percent)
        if not 1 <= levels[0] <= levels[1] <= levels[2] <= 100:
            raise ValueError(
                f"disk_max_used_percent={levels[0]}, disk_clean_forcibly_percent={levels[1]}, "
                f"disk_full_percent={levels[2]}: must not fall, and lie between 1 and 100"
            )

    @property
    def delete_hours(self) -> frozenset[int]:
        """Hours of ``delete_when``."""
        return frozenset(int(hour) for hour in self.delete_when.split(";"))

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
    def broker_defaults(cls, **changes: object) -> StoreConfig:
        """The file sizes of a stock RocketMQ 4.9 broker: 1 GiB, 300,000 entries, an index of 20,000,000 entries."""
        sizes = cls(
            commit_log_file_bytes=1024 * _MIB,
            consume_queue_file_entries=300_000,
            index_slots=5_000_000,
            index_entries=20_000_000,
        )
        return replace(sizes, **changes)  # type: ignore[arg-type]
