"""Grants: what a consumer takes messages with, what answers a pull, and the files that both ask for."""

from __future__ import annotations

from rmqclient.store import layout
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.kernel._kernel import Mapping, QueueGrant, RecordReader, TagSet
from rmqclient.store.life import Life
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.parts import Parts
from rmqclient.store.runtime.group_table import GroupQueueSlot
from rmqclient.store.runtime.shared_state import queue_slot_at
from rmqclient.store.upkeep.compaction import Compaction


class Grants:
    """Makes the grants of one process, and maps files for them."""

    def __init__(self, parts: Parts, life: Life, compaction: Compaction) -> None:
        self._life = life
        self._config = parts.config
        self._state = parts.state
        self._topics = parts.topics
        self._log_files = parts.log_files
        self._consume_queues = parts.consume_queues
        self._compaction = compaction

    def grant(self, slot: GroupQueueSlot, epoch: int, tags: TagSet) -> QueueGrant:
        """Return what takes and acknowledges the messages of one queue under one epoch. Raises StoreClosed."""
        self._life.check_usable()
        number = slot.queue_slot
        queue = self._topics.queue(number)
        return QueueGrant(
            self._state.mapping,
            slot.at,
            queue_slot_at(number),
            number,
            queue,
            epoch,
            self,
            tags,
            group_queue=slot.number,
            log_file_bytes=self._config.commit_log_file_bytes,
            entries_per_file=self._config.consume_queue_file_entries,
            timeout_ms=self._config.lock_timeout_ms,
            max_opened_body_bytes=self._config.max_opened_body_bytes,
            compacted=self._compaction.reader(queue),
        )

    def record_reader(self, queue: MessageQueue) -> RecordReader:
        """Return what reads the records of one queue as they stand. Raises StoreClosed, UnknownTopic."""
        self._life.check_usable()
        number = self._topics.slot(queue)
        return RecordReader(
            self._state.mapping,
            queue_slot_at(number),
            number,
            queue,
            self,
            log_file_bytes=self._config.commit_log_file_bytes,
            entries_per_file=self._config.consume_queue_file_entries,
            max_opened_body_bytes=self._config.max_opened_body_bytes,
            compacted=self._compaction.reader(queue),
        )

    def log_file(self, commit_log_offset: int) -> tuple[Mapping, int] | None:
        """Map the commit log file of an offset, and return where it begins; None when the file was removed.

        Raises FileNotFoundError when the file was lost, so that the grant steps over its messages, and StoreCorrupt
        when its size was changed, which the next opening repairs.
        """
        base = self._log_files.base_of(commit_log_offset)
        try:
            return self._log_files.mapping(base), base
        except FileNotFoundError:
            if commit_log_offset < self._state.min_offset:
                return None
            raise

    def queue_file(self, slot: int, queue_offset: int) -> tuple[Mapping, int] | None:
        """Map the consume queue file of an entry, and return its first entry; None when the file was removed.

        Raises StoreCorrupt when the file was lost.
        """
        queue = self._topics.queue(slot)
        consume_queue = self._consume_queues[queue]
        first = consume_queue.first_entry_of(queue_offset)
        base = first * layout.CONSUME_QUEUE_ENTRY.size
        try:
            return consume_queue.files.mapping(base), first
        except FileNotFoundError:
            if queue_offset < max(self.oldest(slot), self._compaction.log_low(queue)):
                return None
            raise StoreCorrupt(consume_queue.files.path(base), 0, "the file is missing") from None

    def oldest(self, slot: int) -> int:
        """Return the queue offset of the oldest message that was not removed, by the slot of its queue."""
        return self._compaction.oldest(self._topics.queue(slot))
