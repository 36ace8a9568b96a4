"""Settings of one store. The unit of a number is in its name.

Settings marked **fixed** are written to ``<root>/store.json`` when the directory is made; opening it
with other values raises :class:`store.errors.ConfigMismatch`. RocketMQ's name is in brackets.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from store import layout

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
    """Entries of 20 bytes in each consume queue file. **Fixed.** [mappedFileSizeConsumeQueue / 20]"""

    index_slots: int = 100_000
    """Hash slots in each index file. **Fixed.** [maxHashSlotNum]"""

    index_entries: int = 400_000
    """Room for entries in each index file; one is never used. **Fixed.** [maxIndexNum]"""

    message_index: bool = True
    """Whether this process, as the housekeeper, keeps the index up to date; a query does it in any case.
    [messageIndexEnable]"""

    max_body_bytes: int = 4 * _MIB
    """Longest body accepted. [maxMessageSize]"""

    durability: Durability = Durability.ASYNC
    """What a send waits for. [flushDiskType]"""

    flush_interval_ms: int = 500
    """Longest time an ASYNC send stays in the page cache alone. [flushIntervalCommitLog]"""

    flush_least_pages: int = 4
    """An ASYNC flush with fewer dirty pages waits for the thorough one. [flushCommitLogLeastPages]"""

    flush_thorough_interval_ms: int = 10_000
    """Interval of the flush that takes whatever there is. [flushCommitLogThoroughInterval]"""

    offset_persist_interval_ms: int = 5_000
    """How often ``consumerOffset.json`` is written. [flushConsumerOffsetInterval]"""

    lock_timeout_ms: int = 5_000
    """How long an append waits for the lock of another process before it raises ``StoreBusy``."""

    default_queue_count: int = 4
    """Queues of a topic that is made by its first message. [defaultTopicQueueNums]"""

    max_mapped_files: int = 1_024
    """Mappings one process keeps; the least recently used goes first."""

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
            "flush_interval_ms",
            "flush_thorough_interval_ms",
            "offset_persist_interval_ms",
            "lock_timeout_ms",
            "default_queue_count",
            "max_mapped_files",
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
        if self.flush_least_pages < 0:
            raise ValueError(f"flush_least_pages={self.flush_least_pages}: must not be negative")

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
