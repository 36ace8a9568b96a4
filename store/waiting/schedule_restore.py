"""Which delayed messages were delivered, for a new runtime file: from the old one, or from the file and the log.

After a power cut ``config/delayOffset.json`` says how far each level was at least. The rest is found in the log: a
message was delivered if its queue has the copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rmqclient.store.errors import StoreCorrupt, UnknownTopic
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.kernel._kernel import ReceivedMessage
from rmqclient.store.log import commit_log
from rmqclient.store.log.consume_queue import ConsumeQueues
from rmqclient.store.log.query import offset_by_time
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime.queue_table import QueueTable
from rmqclient.store.runtime.shared_state import SharedState, schedule_slot_at
from rmqclient.store.settings import config_file
from rmqclient.store.waiting.real_queue import real_queue
from rmqclient.store.waiting.schedule import DELAY_LEVELS, queue_of


def delivered_of(leftover: SharedState) -> dict[int, int]:
    """Return, by delay level, the next message to deliver, from the runtime file of this boot."""
    return {level: leftover.words.load(schedule_slot_at(level - 1)) for level in DELAY_LEVELS}


def restore(
    root: Path,
    state: SharedState,
    topics: QueueTable,
    log_files: FileQueue,
    consume_queues: ConsumeQueues,
    kept: Mapping[int, int] | None,
) -> None:
    """Fill the schedule table of a new runtime file from ``kept``, or if it is None from the file and the log.

    An offset outside of its queue is moved into it, in ``delayOffset.json`` too: a message that a power cut took back
    must not count as delivered, because the next message gets its number. Raises StoreCorrupt, StoreFull.
    """
    on_disk = config_file.read_delay_offsets(root)
    copies = _Copies(topics, log_files, consume_queues)
    withdrawn = {}
    for level in DELAY_LEVELS:
        try:
            low, high = topics.min_offset(queue_of(level)), topics.max_offset(queue_of(level))
        except UnknownTopic:
            low, high = 0, 0
        known = on_disk.get(level, 0)
        offset = min(max(known, low), high)
        if kept is not None and kept[level] <= high:
            offset = max(offset, kept[level])
        else:
            offset = copies.behind(level, offset, high)
        state.words.store(schedule_slot_at(level - 1), offset)
        if offset < known:
            withdrawn[level] = offset
    if withdrawn:
        config_file.write_delay_offsets(root, withdrawn)


class _Copies:
    """The copies of delivered messages, found in the queues that they were delivered to."""

    def __init__(self, topics: QueueTable, log_files: FileQueue, consume_queues: ConsumeQueues) -> None:
        self._topics = topics
        self._log_files = log_files
        self._consume_queues = consume_queues
        self._looked_to: dict[tuple[int, MessageQueue], int] = {}

    def behind(self, level: int, start: int, end: int) -> int:
        """Return the queue offset behind the last message of a level, from ``start`` on, that was delivered."""
        for number in range(start, end):
            try:
                entry = self._consume_queues[queue_of(level)].entry(number)
                message = commit_log.read(self._log_files, entry.commit_log_offset)
            except (StoreCorrupt, FileNotFoundError):
                continue
            if not self._has_copy(level, message, entry.tags_code):
                return number
        return end

    def _has_copy(self, level: int, message: ReceivedMessage, due_ms: int) -> bool:
        queue = real_queue(message)
        if queue is None:
            return True  # it is not delivered at all
        try:
            known = range(self._topics.min_offset(queue), self._topics.max_offset(queue))
        except UnknownTopic:
            return False
        entries = self._consume_queues[queue]
        start = self._looked_to.get((level, queue))
        if start is None:
            start = offset_by_time(self._log_files, entries, known, due_ms)
        for number in range(start, known.stop):
            try:
                found = commit_log.read(self._log_files, entries.entry(number).commit_log_offset)
            except (StoreCorrupt, FileNotFoundError):
                continue
            if _content(found) == _content(message):
                self._looked_to[level, queue] = number + 1
                return True
        return False


def _content(message: ReceivedMessage) -> tuple[object, ...]:
    """Return what a message has in common with its copy, and with no other message that has a unique key."""
    return message.properties, message.born_timestamp, message.delivery_attempt, message.stored_body
