"""Schedule: messages that wait in a delay level go to their own queue when they are due.

A delayed message waits in ``SCHEDULE_TOPIC_XXXX``, in the queue of its level (level 1 is queue 0), and its consume
queue entry holds the time at which it is due (ScheduleMessageService). Its properties ``REAL_TOPIC`` and ``REAL_QID``
name its own queue. A copy is delivered: only place, store time and CRC are new.

**Order.** A level is first in, first out, because all its messages wait for the same time.

**Exactly once.** The append of the copy also advances the level's word in the runtime file, under the append mutex
(``Appender.deliver``). A process that is killed at any instruction leaves both done or neither, and the next owner of
the mutex settles it. A process delivers only the message at which the word stands, so any number of them may deliver at
once: no lock is held for that, which a process that stands still would keep. While the kernel runs, the word
outlives all processes. After a power cut ``config/delayOffset.json`` says how far the levels were. That file is written
only when everything delivered is on the disk, so it never says too much. If it says too little, recovery finds the rest
by looking for the copies in their queues: :mod:`rmqclient.store.waiting.schedule_restore`.

**Time.** The thread sleeps until the next message is due, and half a second at the longest: no level is shorter, and a
wall clock that was set is noticed in that time. If a due time is later than the level allows, it was stored before the
clock was set back, and counts as due, as in RocketMQ. A step back of up to a second is tolerated, because store times
do not follow it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from rmqclient.store import clock, layout
from rmqclient.store.errors import MessageRejected, StoreClosed, StoreCorrupt, UnknownTopic
from rmqclient.store.files.file_lock import TOPIC_BYTE
from rmqclient.store.kernel._kernel import SCHEDULE_TOPIC, Appender, ReceivedMessage, delay_ms
from rmqclient.store.log import commit_log
from rmqclient.store.log.consume_queue import Entry
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.native_threads import threading
from rmqclient.store.parts import Parts
from rmqclient.store.runtime.passes import Passes
from rmqclient.store.runtime.shared_state import schedule_slot_at
from rmqclient.store.settings import config_file
from rmqclient.store.threads.logs import Log
from rmqclient.store.waiting.due_pump import LONGEST_SLEEP_MS, SLICE, DuePump
from rmqclient.store.waiting.real_queue import real_queue

_log = Log(__name__)

DELAY_LEVELS = range(1, 19)
_STEP_BELIEVED_MS = 1_000
"""Store times do not follow a clock that is set back by less."""


class Schedule:
    """The messages that wait in the delay levels of one open store. :meth:`run` is for the housekeeper."""

    def __init__(
        self,
        parts: Parts,
        oldest: Callable[[MessageQueue], int],
        make_appender: Callable[[], Appender],
        wait_until_flushed: Callable[[int], None],
        now_ms: Callable[[], int] = clock.wall_ms,
    ) -> None:
        self._root = parts.root
        self._state = parts.state
        self._lock = parts.lock
        self._make_appender = make_appender
        self._wait_until_flushed = wait_until_flushed
        self.now_ms = now_ms
        self._appender: Appender | None = None
        passes = Passes(parts.state)
        self._levels = {level: _Level(level, parts, oldest, passes, self) for level in DELAY_LEVELS}
        self.pumps = {
            level: DuePump(f"delay level {level}", passes.watched(f"delivering delay level {level}", one.deliver_due))
            for level, one in self._levels.items()
        }

    def run(self, ended: threading.Event) -> None:
        """Deliver what is due until ``ended`` is set and the clock rung; failures are logged and tried again."""
        with contextlib.suppress(StoreClosed):  # another thread has just closed the store
            self.appending()
        while True:
            heard = clock.heard()
            if ended.is_set():
                break
            clock.wait(heard, clock.real_s_to(self.look()))

    def look(self) -> int:
        """Deliver what is due, up to a slice of each level; return in how many ms to look again."""
        return min((pump.look() for pump in self.pumps.values()), default=LONGEST_SLEEP_MS)

    def has_due(self) -> bool:
        """Tell whether a message is due and not delivered."""
        return any(level.has_due() for level in self._levels.values())

    def next_offset(self, level: int) -> int:
        """Return the queue offset of the next message of a level to be delivered."""
        return self._levels[level].next_offset()

    def persist(self) -> None:
        """Flush everything delivered, then write ``delayOffset.json``.

        Raises StoreFull, StoreBusy, StorePoisoned, NotFlushed.
        """
        offsets = {number: level.next_offset() for number, level in self._levels.items()}
        known = config_file.read_delay_offsets(self._root)
        moved = {level: offset for level, offset in offsets.items() if offset != known.get(level, 0)}
        if moved:
            self._wait_until_flushed(self._state.published_to)
            with self._lock.held(TOPIC_BYTE):
                config_file.write_delay_offsets(self._root, moved)

    def let_go(self) -> None:
        """Undo the circle with the levels; nothing is delivered after this."""
        self.pumps.clear()
        self._levels.clear()

    def appending(self) -> Appender:
        """Return the appender of all levels; the first call makes it. Raises StoreClosed."""
        if self._appender is None:
            self._appender = self._make_appender()
        return self._appender


class _Level:
    """The messages that wait in one delay level, a number from 1."""

    def __init__(
        self, level: int, parts: Parts, oldest: Callable[[MessageQueue], int], passes: Passes, schedule: Schedule
    ) -> None:
        self._level = level
        self._queue = queue_of(level)
        self._slot = schedule_slot_at(level - 1)
        self._words = parts.state.words
        self._topics = parts.topics
        self._log_files = parts.log_files
        self._consume_queues = parts.consume_queues
        self._oldest = oldest
        self._passes = passes
        self._schedule = schedule

    def next_offset(self) -> int:
        """Return the queue offset of the next message to be delivered."""
        return self._words.load(self._slot)

    def has_due(self) -> bool:
        """Tell whether the next message is due."""
        found = self._next()
        return found is not None and (not found[1] or self._ms_left(found[1][0]) <= 0)

    def deliver_due(self) -> int:
        """Deliver up to a slice of what is due; return in how many ms to look again."""
        found = self._next()
        if found is None:
            return LONGEST_SLEEP_MS
        start, entries = found
        if not entries or (left := self._ms_left(entries[0])) <= 0:
            return self._deliver_slice(start, entries)
        return left

    def _next(self) -> tuple[int, list[Entry]] | None:
        """Return the queue offset of the next message, and entries from it on; None if none waits.

        There are no entries if retention has removed them.
        """
        try:
            end = self._topics.max_offset(self._queue)
        except UnknownTopic:
            return None
        start = self.next_offset()
        return None if start >= end else (start, self._entries(start, end))

    def _entries(self, start: int, end: int) -> list[Entry]:
        consume_queue = self._consume_queues[self._queue]
        if start < self._topics.min_offset(self._queue):
            return []
        first = consume_queue.first_entry_of(start)
        try:
            return consume_queue.entries(start, min(end, start + SLICE, first + consume_queue.entries_per_file))
        except FileNotFoundError:
            if start < self._oldest(self._queue):
                return []
            path = consume_queue.files.path(first * layout.CONSUME_QUEUE_ENTRY.size)
            raise StoreCorrupt(path, 0, "the file is missing") from None

    def _deliver_slice(self, start: int, entries: list[Entry]) -> int:
        if not entries:
            low = max(self._topics.min_offset(self._queue), self._oldest(self._queue))
            _log.warning("delay level %d: %d messages were removed before they were due", self._level, low - start)
            self._step_over(start, low)
        for number, entry in enumerate(entries, start):
            left = self._ms_left(entry)
            if left > 0:
                return left
            if not self._deliver(number, entry):
                break
        return 0

    def _deliver(self, number: int, entry: Entry) -> bool:
        """Deliver one message. False if another process has delivered it."""
        message = self._message(number, entry)
        target = None if message is None else real_queue(message)
        if message is not None and target is not None:
            try:
                self._topics.make_lost(target)
                appender = self._schedule.appending()
                return appender.deliver(message, target.topic, target.queue_id, self._slot) is not None
            except MessageRejected as error:
                _log.error("%s", error)
        where = f"message {number} of delay level {self._level}, at {entry.commit_log_offset} of the commit log"
        _log.error("%s cannot be delivered, and is stepped over", where)
        return self._step_over(number, number + 1)

    def _ms_left(self, entry: Entry) -> int:
        """Return how many ms a message still waits. Store times are in whole ms, so 1 ms more is never early."""
        left = entry.tags_code + 1 - self._schedule.now_ms()
        return left if left <= delay_ms(self._level) + _STEP_BELIEVED_MS else 0

    def _message(self, number: int, entry: Entry) -> ReceivedMessage | None:
        try:
            message = commit_log.read(self._log_files, entry.commit_log_offset)
        except (StoreCorrupt, FileNotFoundError) as error:
            _log.error("%s", error)
            return None
        place = MessageQueue(message.topic, message.queue_id), message.queue_offset
        return message if place == (self._queue, number) else None

    def _step_over(self, start: int, end: int) -> bool:
        is_ours = self._words.replace(self._slot, start, end)
        if is_ours:
            self._passes.step_over(end - start)
        return is_ours


def queue_of(level: int) -> MessageQueue:
    """Return the queue in which the messages of a delay level wait."""
    return MessageQueue(SCHEDULE_TOPIC, level - 1)
