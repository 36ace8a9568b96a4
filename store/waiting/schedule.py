"""Schedule: messages that wait in a delay level go to their own queue when they are due.

A delayed message waits in ``SCHEDULE_TOPIC_XXXX``, in the queue of its level (level 1 is queue 0), and its consume
queue entry holds the time at which it is due (ScheduleMessageService). Topic and queue stand in its properties
``REAL_TOPIC`` and ``REAL_QID``. What is delivered is a copy: only place, store time and CRC are new.

**Order.** Within a level the first in is the first out, because all wait for the same time.

**Exactly once.** The append of the copy also moves the level's word in the runtime file on, under the append mutex
(``Appender.deliver``): a process that is killed at any instruction leaves both done or neither, and the next owner of
the mutex settles it. Nobody delivers a message at which the word does not stand. While the kernel runs, the word
outlives all processes. After a power cut ``config/delayOffset.json`` says how far the levels were. It is written only
when everything delivered is on the disk, so it never says too much. What it says too little is found by looking for
the copies in their queues: :func:`restore`.

**Time.** The thread sleeps until the next message is due, and half a second at the longest: no level is shorter than
that, and it so notices a wall clock that was set. A due time that is later than the level allows was stored before the
clock was set back, and counts as due, as in RocketMQ; a step of up to a second is what store times themselves are kept
from.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event

from rmqclient.store import layout
from rmqclient.store.errors import (
    MessageRejected,
    QueueError,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StorePoisoned,
    UnknownTopic,
)
from rmqclient.store.files.file_lock import SCHEDULE_BYTE, TOPIC_BYTE
from rmqclient.store.files.file_queue import FileQueue
from rmqclient.store.kernel._kernel import (
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    Appender,
    ReceivedMessage,
    delay_ms,
)
from rmqclient.store.log import commit_log
from rmqclient.store.log.consume_queue import ConsumeQueues, Entry
from rmqclient.store.log.query import offset_by_time
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.parts import Parts
from rmqclient.store.runtime.shared_state import SharedState, schedule_slot_at
from rmqclient.store.settings import config_file
from rmqclient.store.settings.topic_table import TopicTable

_log = logging.getLogger(__name__)

LEVELS = range(1, 19)
PERSIST_INTERVAL_MS = 10_000
"""[flushDelayOffsetInterval]"""

_LONGEST_SLEEP_MS = 500
_PAUSE_AFTER_FAILURE_S = 10.0
"""[ScheduleMessageService.DELAY_FOR_A_PERIOD]"""
_SLICE = 256
"""Messages of one level that are delivered before the other levels get their turn."""
_STEP_BELIEVED_MS = 1_000
"""Store times do not follow a clock that is set back by less."""

_NAME = re.compile(rf"[%|a-zA-Z0-9_-]{{1,{layout.MAX_TOPIC_BYTES}}}")
_WAITING = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC)
_QUEUE_ID = re.compile("[0-9]{1,9}")


class Schedule:
    """What waits in the delay levels of one open store. :meth:`run` is for the housekeeper."""

    def __init__(
        self,
        parts: Parts,
        oldest: Callable[[MessageQueue], int],
        make_appender: Callable[[], Appender],
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._root = parts.root
        self._state = parts.state
        self._lock = parts.lock
        self._topics = parts.topics
        self._log_files = parts.log_files
        self._consume_queues = parts.consume_queues
        self._oldest = oldest
        self._make_appender = make_appender
        self.now_ms = now_ms
        self._appender: Appender | None = None
        self._not_before: dict[int, float] = {}

    def run(self, ended: Event) -> None:
        """Deliver what is due until ``ended`` is set; failures are reported and tried again."""
        with contextlib.suppress(StoreClosed):  # by another thread, just now
            self._appending()
        while not ended.is_set():
            ended.wait(self.look() / 1000)

    def look(self) -> int:
        """Deliver what is due, of each level so many at most; return in how many ms to look again."""
        return min(self._look_at(level) for level in LEVELS)

    def next_offset(self, level: int) -> int:
        """Return the queue offset of the next message of a level to be delivered."""
        return self._state.words.load(schedule_slot_at(level - 1))

    def persist(self, wait_until_flushed: Callable[[int], None]) -> None:
        """Write ``delayOffset.json``, when everything that was delivered is on the disk.

        Raises StoreFull, StoreBusy, StorePoisoned, NotFlushed.
        """
        offsets = {level: self.next_offset(level) for level in LEVELS}
        known = config_file.read_delay_offsets(self._root)
        moved = {level: offset for level, offset in offsets.items() if offset != known.get(level, 0)}
        if moved:
            wait_until_flushed(self._state.published_to)
            with self._lock.held(TOPIC_BYTE):
                config_file.write_delay_offsets(self._root, moved)

    def _look_at(self, level: int) -> int:
        if self._not_before.get(level, 0.0) > time.monotonic():
            return _LONGEST_SLEEP_MS
        try:
            return self._deliver_due(level)
        except StoreClosed:
            pass  # this process leaves; another one goes on
        except StoreBusy as error:
            _log.info("delay level %d will go on next time: %s", level, error)
        except (QueueError, OSError) as error:
            self._not_before[level] = time.monotonic() + _PAUSE_AFTER_FAILURE_S
            if not isinstance(error, StorePoisoned):  # which every sender is told
                _log.error("delay level %d waits for %.0f s: %s", level, _PAUSE_AFTER_FAILURE_S, error)
        return _LONGEST_SLEEP_MS

    def _deliver_due(self, level: int) -> int:
        queue = queue_of(level)
        try:
            end = self._topics.max_offset(queue)
        except UnknownTopic:
            return _LONGEST_SLEEP_MS
        start = self.next_offset(level)
        if start >= end:
            return _LONGEST_SLEEP_MS
        entries = self._entries(level, start, end)
        if not entries or (left := self._ms_left(level, entries[0])) <= 0:
            with self._lock.held(SCHEDULE_BYTE):
                return self._deliver_slice(level, start, entries)
        return min(left, _LONGEST_SLEEP_MS)

    def _entries(self, level: int, start: int, end: int) -> list[Entry]:
        """Return the next entries of a level; none when retention has removed them."""
        queue = queue_of(level)
        consume_queue = self._consume_queues[queue]
        if start < self._topics.min_offset(queue):
            return []
        first = consume_queue.first_entry_of(start)
        try:
            return consume_queue.entries(start, min(end, start + _SLICE, first + consume_queue.entries_per_file))
        except FileNotFoundError:
            if start < self._oldest(queue):
                return []
            path = consume_queue.files.path(first * layout.CONSUME_QUEUE_ENTRY.size)
            raise StoreCorrupt(path, 0, "the file is missing") from None

    def _deliver_slice(self, level: int, start: int, entries: list[Entry]) -> int:
        if not entries:
            low = max(self._topics.min_offset(queue_of(level)), self._oldest(queue_of(level)))
            _log.warning("delay level %d: %d messages were removed before they were due", level, low - start)
            self._step_over(level, start, low)
        for number, entry in enumerate(entries, start):
            left = self._ms_left(level, entry)
            if left > 0:
                return min(left, _LONGEST_SLEEP_MS)
            if not self._deliver(level, number, entry):
                break
        return 0

    def _deliver(self, level: int, number: int, entry: Entry) -> bool:
        """Deliver one message. False when somebody else has done it."""
        message = self._message(level, number, entry)
        target = None if message is None else real_queue(message)
        if message is not None and target is not None:
            try:
                self._topics.make_lost(target)
                slot = schedule_slot_at(level - 1)
                return self._appending().deliver(message, target.topic, target.queue_id, slot) is not None
            except MessageRejected as error:
                _log.error("%s", error)
        where = f"message {number} of delay level {level}, at {entry.commit_log_offset} of the commit log"
        _log.error("%s cannot be delivered, and is stepped over", where)
        return self._step_over(level, number, number + 1)

    def _ms_left(self, level: int, entry: Entry) -> int:
        """Return how long a message still waits; its store time is in whole ms, and never is it early."""
        left = entry.tags_code + 1 - self.now_ms()
        return left if left <= delay_ms(level) + _STEP_BELIEVED_MS else 0

    def _message(self, level: int, number: int, entry: Entry) -> ReceivedMessage | None:
        try:
            message = commit_log.read(self._log_files, entry.commit_log_offset)
        except (StoreCorrupt, FileNotFoundError) as error:
            _log.error("%s", error)
            return None
        place = MessageQueue(message.topic, message.queue_id), message.queue_offset
        return message if place == (queue_of(level), number) else None

    def _step_over(self, level: int, start: int, end: int) -> bool:
        return self._state.words.replace(schedule_slot_at(level - 1), start, end)

    def _appending(self) -> Appender:
        if self._appender is None:
            self._appender = self._make_appender()
        return self._appender


def queue_of(level: int) -> MessageQueue:
    """Return where the messages of a delay level wait."""
    return MessageQueue(SCHEDULE_TOPIC, level - 1)


def real_queue(message: ReceivedMessage) -> MessageQueue | None:
    """Return the queue that a delayed message waits for; None for none that may be.

    The half messages of transactions are not delivered (ScheduleMessageService.executeOnTimeup), and nothing is
    delivered to where messages wait.
    """
    properties = message.properties
    topic, queue_id = properties.get("REAL_TOPIC", ""), properties.get("REAL_QID", "")
    if topic in _WAITING or not (_NAME.fullmatch(topic) and _QUEUE_ID.fullmatch(queue_id)):
        return None
    return MessageQueue(topic, int(queue_id))


# --- opening --------------------------------------------------------------------------------------


def delivered_of(leftover: SharedState) -> dict[int, int]:
    """Take the progress of the delay levels over from the runtime file of this boot."""
    return {level: leftover.words.load(schedule_slot_at(level - 1)) for level in LEVELS}


def restore(
    root: Path,
    state: SharedState,
    topics: TopicTable,
    log_files: FileQueue,
    consume_queues: ConsumeQueues,
    kept: Mapping[int, int] | None,
) -> None:
    """Fill the schedule table of a new runtime file from ``kept``, or else from ``delayOffset.json`` and the log.

    An offset outside of its queue is moved into it, in the file too: a message that did not survive a power cut must
    not stay behind as delivered, because the next one gets its number. Raises StoreCorrupt, StoreFull.
    """
    on_disk = config_file.read_delay_offsets(root)
    copies = _Copies(topics, log_files, consume_queues)
    withdrawn = {}
    for level in LEVELS:
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
    """What was delivered, as the queues that it was delivered to have it."""

    def __init__(self, topics: TopicTable, log_files: FileQueue, consume_queues: ConsumeQueues) -> None:
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
    """Return what a message and its copy have in common, and no other two with a unique key."""
    return message.properties, message.born_timestamp, message.delivery_attempt, message.stored_body
