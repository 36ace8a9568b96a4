"""Queue reader: records of a queue as they stand in the log, for the answer to one pull.

The records go out as they are, but for their store host: that becomes the address by which the client came in, because
clients make offset message ids of it (MessageDecoder.decode). Nobody checks ``__CRC32#`` behind the log, so it stays.

A damaged record is logged and stepped over. A record that retention has removed meanwhile moves the pull on.
"""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass
from typing import Final

from rmqclient.broker.pulling.selection import Selection
from rmqclient.broker.pulling.store_host import with_store_host
from rmqclient.broker.settings import Address
from rmqclient.remoting.frame import MAX_FRAME_BYTES
from rmqclient.store import MessageQueue, MessageStore, ReceivedMessage
from rmqclient.store.errors import MessageExpired, StoreCorrupt, UnknownTopic
from rmqclient.store.log.consume_queue import Entry
from rmqclient.store.log.record import Outcome, Record, decode

MOST_MESSAGES: Final = 32
"""Messages of one answer at most. [maxTransferCountOnMessageInMemory]"""

MOST_BYTES: Final = 256 * 1024
"""Bytes of the records of one answer at most, but always one record. [maxTransferBytesOnMessageInMemory]"""

MOST_ENTRIES: Final = 800
"""Entries that one look passes over at most. [maxFilterMessageCount: 16,000 bytes of entries]"""

MOST_JUDGED: Final = 256
"""Records whose properties one look reads at most: a millisecond of the event loop, about."""

LONGEST_RECORD: Final = MAX_FRAME_BYTES - 4_096
"""A longer record does not fit into the frame of an answer, and is stepped over."""

_log = logging.getLogger(__name__)


class LookStatus(enum.Enum):
    """What became of a look at a queue; RocketMQ's names, which stand in the remarks of answers. [GetMessageStatus]"""

    FOUND = enum.auto()
    NO_MATCHED_MESSAGE = enum.auto()
    MESSAGE_WAS_REMOVING = enum.auto()
    OFFSET_OVERFLOW_ONE = enum.auto()
    OFFSET_OVERFLOW_BADLY = enum.auto()
    OFFSET_TOO_SMALL = enum.auto()
    NO_MESSAGE_IN_QUEUE = enum.auto()
    NO_MATCHED_LOGIC_QUEUE = enum.auto()


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a queue found. ``next_offset`` is where to go on; ``body`` holds the records."""

    status: LookStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes = b""


class QueueReader:
    """Reads the queues of a store, for one thread at a time."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def end(self, queue: MessageQueue) -> int:
        """Return the queue offset that the next message will get; 0 for a queue that is not there."""
        try:
            return self._store.topics.max_offset(queue)
        except UnknownTopic:
            return 0

    def nothing(self, queue: MessageQueue, offset: int) -> Look:
        """Return that there is nothing for the client at an offset now, whatever stands there."""
        try:
            low, high = self._store.topics.min_offset(queue), self._store.topics.max_offset(queue)
        except UnknownTopic:
            low = high = 0
        return Look(LookStatus.OFFSET_OVERFLOW_ONE, offset, low, high)

    def look(
        self, queue: MessageQueue, offset: int, most: int, most_bytes: int, wanted: Selection, host: Address
    ) -> Look:
        """Return the records from ``offset`` on that are wanted, as far as one answer goes."""
        try:
            low, high = self._store.topics.min_offset(queue), self._store.topics.max_offset(queue)
        except UnknownTopic:
            return Look(LookStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        if high == 0:
            return Look(LookStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        if offset < low:
            return Look(LookStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return Look(LookStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            return Look(LookStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        reading = _Reading(self._store, queue, offset, high, most, most_bytes, wanted)
        try:
            reading.read()
        except MessageExpired:
            if not reading.records:
                oldest = max(reading.offset + 1, self._store.oldest(self._store.topics.slot(queue)))
                return Look(LookStatus.MESSAGE_WAS_REMOVING, min(oldest, high), low, high)
        if not reading.records:
            return Look(LookStatus.NO_MATCHED_MESSAGE, reading.offset, low, high)
        return Look(LookStatus.FOUND, reading.offset, low, high, with_store_host(reading.records, host))


class _Reading:
    """One look that is under way: ``records`` were found, and ``offset`` is where it stands."""

    def __init__(
        self,
        store: MessageStore,
        queue: MessageQueue,
        offset: int,
        high: int,
        most: int,
        most_bytes: int,
        wanted: Selection,
    ) -> None:
        self._store = store
        self._queue = queue
        self.offset = offset
        self._stop = min(high, offset + MOST_ENTRIES)
        self._most = most
        self._bytes = most_bytes
        self._judged = MOST_JUDGED
        self._wanted = wanted
        self.records: list[bytes] = []

    def read(self) -> None:
        """Take records until the answer is full or the look has gone far enough. Raises MessageExpired."""
        self._read_compacted()
        entries = self._store.consume_queues[self._queue]
        while self.offset < self._stop and self._most > 0:
            end = min(self._stop, entries.first_entry_of(self.offset) + entries.entries_per_file)
            if not self._wanted.codes:
                end = min(end, self.offset + self._most)
            for entry in self._entries(end):
                if not self._take(entry):
                    return
                self.offset += 1
                if self._most == 0:
                    return

    def _entries(self, end: int) -> list[Entry]:
        """Return the entries up to ``end``, in one file. A lost file is logged and stepped over."""
        queue = self._store.consume_queues[self._queue]
        try:
            return queue.entries(self.offset, end)
        except FileNotFoundError:
            if self.offset < self._store.oldest(self._store.topics.slot(self._queue)):
                raise MessageExpired(f"message {self.offset} of {self._queue} was removed") from None
            _log.error("messages %d to %d of %s: their entries are lost", self.offset, end - 1, self._queue)
        except StoreCorrupt as error:
            _log.error("messages %d to %d of %s: %s", self.offset, end - 1, self._queue, error)
        self.offset = end
        return []

    def _take(self, entry: Entry) -> bool:
        """Look at one message. False when it belongs to the next answer. Raises MessageExpired."""
        codes = self._wanted.codes
        if codes and entry.tags_code & 0xFFFF_FFFF not in codes:
            return True
        if (self.records and entry.size > self._bytes) or self._judged == 0:
            return False
        message = self._message(entry)
        if message is not None:
            self._add(message)
        return True

    def _add(self, message: ReceivedMessage) -> None:
        sql = self._wanted.sql
        if sql is not None:
            self._judged -= 1
            if not sql.matches(message.some_properties(sql.names)):
                return
        self.records.append(message.record())
        self._most -= 1
        self._bytes -= message.size

    def _message(self, entry: Entry) -> ReceivedMessage | None:
        """Return the message of an entry; None if it is damaged. Raises MessageExpired."""
        at, size = entry.commit_log_offset, entry.size
        if at >= 0 and 0 < size <= LONGEST_RECORD:
            damage = "it is not the record of its entry"
            try:
                outcome = self._outcome(at, size)
            except (FileNotFoundError, StoreCorrupt) as error:
                damage = str(error) or "its file is missing"
            else:
                if isinstance(outcome, Record) and outcome.message.queue_offset == self.offset:
                    return outcome.message
        else:
            damage = f"its entry says {size:,} bytes at {at}"
        if at < self._store.state.min_offset:
            raise MessageExpired(f"message {self.offset} of {self._queue} was removed")
        _log.error("message %d of %s was stepped over: %s", self.offset, self._queue, damage)
        return None

    def _outcome(self, at: int, size: int) -> Outcome:
        files = self._store.log_files
        base = files.base_of(at)
        return decode(files.read(base, at - base, size), 0, at)

    def _read_compacted(self) -> None:
        """Take what a compact topic has kept of messages that the log has lost."""
        compacted = self._store.compaction.reader(self._queue)
        while compacted is not None and self.offset < self._stop and self._most > 0:
            found_at, message, _ = compacted(self.offset)
            if message is None:
                self.offset = max(self.offset, found_at)
                return
            if self.records and message.size > self._bytes:
                self._most = 0
                return
            self.offset = found_at + 1
            codes = self._wanted.codes
            if not codes or message.tags_code & 0xFFFF_FFFF in codes:
                self._add(message)
