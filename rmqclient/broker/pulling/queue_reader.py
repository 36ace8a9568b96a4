"""Queue reader: reads the records of a queue for the answer to one pull.

Records are sent unchanged, except for their store host (:mod:`rmqclient.broker.pulling.store_host`). A damaged record
is logged and skipped. If retention has removed a record, the pull continues at the oldest one.

A batch that a local producer compressed into one record is sent as one message: its messages share one queue offset,
and clients index pulled messages by queue offset.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rmqclient.broker.address import Address
from rmqclient.broker.pulling.selection import Selection
from rmqclient.broker.pulling.store_host import host_bytes
from rmqclient.store import MessageQueue, MessageStore, RecordReader
from rmqclient.store.errors import StoreCorrupt, UnknownTopic
from rmqclient.store.log.record import reason
from rmqclient.store.threads.logs import Log
from rmqclient.store.wire import ReadStatus

MOST_MESSAGES: Final = 32
"""Messages of one answer, at most. [maxTransferCountOnMessageInMemory]"""

MOST_BYTES: Final = 256 * 1024
"""Bytes of the records of one answer, at most, but always one record. [maxTransferBytesOnMessageInMemory]"""

_log = Log(__name__)


class LookStatus(enum.Enum):
    """Outcome of a look at a queue, by RocketMQ's names, which appear in remarks of answers. [GetMessageStatus]"""

    FOUND = enum.auto()
    NO_MATCHED_MESSAGE = enum.auto()
    MESSAGE_WAS_REMOVING = enum.auto()
    OFFSET_OVERFLOW_ONE = enum.auto()
    OFFSET_OVERFLOW_BADLY = enum.auto()
    OFFSET_TOO_SMALL = enum.auto()
    NO_MESSAGE_IN_QUEUE = enum.auto()
    NO_MATCHED_LOGIC_QUEUE = enum.auto()


_STATUSES: Final[Mapping[int, LookStatus]] = {
    ReadStatus.FOUND: LookStatus.FOUND,
    ReadStatus.NONE_WANTED: LookStatus.NO_MATCHED_MESSAGE,
    ReadStatus.AT_END: LookStatus.OFFSET_OVERFLOW_ONE,
    ReadStatus.BEYOND_END: LookStatus.OFFSET_OVERFLOW_BADLY,
    ReadStatus.REMOVED: LookStatus.MESSAGE_WAS_REMOVING,
}


@dataclass(frozen=True, slots=True)
class Look:
    """Result of a look at a queue. The next look begins at ``next_offset``; ``body`` has the records."""

    status: LookStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes = b""
    messages: int = 0
    """Number of records in the body."""


class QueueReader:
    """Reads the queues of a store, for one thread."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._readers: dict[MessageQueue, RecordReader] = {}

    def end(self, queue: MessageQueue) -> int:
        """Return the queue offset of the next message to be stored; 0 for a missing queue."""
        reader = self._reader(queue)
        return 0 if reader is None else reader.max_offset

    def nothing(self, queue: MessageQueue, offset: int) -> Look:
        """Return the result for no messages at an offset, whatever the queue has there."""
        reader = self._reader(queue)
        if reader is None:
            return Look(LookStatus.NO_MATCHED_LOGIC_QUEUE, offset, 0, 0)
        high = reader.max_offset
        status = LookStatus.OFFSET_OVERFLOW_ONE if high else LookStatus.NO_MESSAGE_IN_QUEUE
        return Look(status, offset, self._store.topics.min_offset(queue), high)

    def look(
        self, queue: MessageQueue, offset: int, most: int, most_bytes: int, wanted: Selection, host: Address
    ) -> Look:
        """Return the wanted records from ``offset`` on, within the limits of one answer. Raises LimitReached."""
        reader = self._reader(queue)
        if reader is None:
            return Look(LookStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low, high = self._store.topics.min_offset(queue), reader.max_offset
        if high == 0:
            return Look(LookStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        if offset < low:
            return Look(LookStatus.OFFSET_TOO_SMALL, low, low, high)
        try:
            body, following, count, status = reader.read(
                offset,
                wanted.tag_set,
                most_messages=most,
                most_bytes=most_bytes,
                most_looked_at=wanted.most_looked_at,
                store_host=host_bytes(host),
            )
        except StoreCorrupt as error:
            return self._behind_lost_entries(queue, offset, low, high, error)
        if reader.damaged:
            self._report(reader)
        return Look(_STATUSES[status], following, low, max(high, following), body, count)

    def _reader(self, queue: MessageQueue) -> RecordReader | None:
        reader = self._readers.get(queue)
        if reader is None:
            try:
                reader = self._readers[queue] = self._store.grants.record_reader(queue)
            except UnknownTopic:
                return None
        return reader

    def _behind_lost_entries(self, queue: MessageQueue, offset: int, low: int, high: int, error: StoreCorrupt) -> Look:
        """Skip the rest of a consume queue file that cannot be read."""
        entries = self._store.consume_queues[queue]
        following = min(high, entries.first_entry_of(offset) + entries.entries_per_file)
        _log.error("messages %d to %d of %s were stepped over: %s", offset, following - 1, queue, error)
        return Look(LookStatus.NO_MATCHED_MESSAGE, following, low, high)

    def _report(self, reader: RecordReader) -> None:
        for offset, at, found in reader.damaged:
            _log.error(
                "message %d of %s, at %d of the log, is damaged; it was stepped over: %s",
                offset,
                reader.queue,
                at,
                reason(found),
            )
        reader.damaged.clear()
