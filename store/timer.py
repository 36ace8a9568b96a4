"""Timer: messages with any delay, to the ms, wait in one queue and go to their own when they are due.

Such a message is a record in ``rmq_sys_wheel_timer``, queue 0, which is where RocketMQ 5 keeps them. Topic and queue
stand in its properties ``REAL_TOPIC`` and ``REAL_QID``, the due time in ``TIMER_OUT_MS`` and in its entry. Its wait
ends in one of three ways, each of which appends a record that says which message it was (``TIMER_QUEUE_OFFSET``):

=========  ======================================  ==================================================================
way        what is appended                        why
=========  ======================================  ==================================================================
delivered  a copy, to its own queue                it is due
rolled     a copy, to the end of the timer queue   retention is about to remove its file, or it is too far behind
cancelled  an operation, to the timer queue        somebody said so; ``TIMER_DEL_UNIQKEY`` is the id of the message
=========  ======================================  ==================================================================

**Exactly once.** Whether a message is done is a bit in the runtime file, and the append of that record sets it, under
the append mutex: a process that is killed at any instruction leaves both done or neither, and the next owner of the
mutex settles it. The append does nothing when the bit is set already. So anybody may deliver, roll and cancel at any
time; one of them does it.

**The bits** are a ring: bit ``queue_offset % 16 Mi``. Below ``done_to`` every message is done and its bit is clear
again for the message one turn later. It is moved under the append mutex, with no append under way; ``clearing_to``
tells the next one how far a move was to go. A message whose queue offset would get the bit of one that still waits is
refused; long before, the oldest are rolled.

**What is derived.** The housekeeper has the due times in memory, 16 bytes a message, read from the entries when it gets
the role. It sleeps until the next one, or until a message comes. After a power cut the bits are made again from the
log: :mod:`store.timer_restore`.

**Time** is the wall clock. A message is never delivered before it shows its due time. A clock that is set forward
delivers at once what is then due, one that is set back lets it wait; a jump is noticed within half a second.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from threading import Event
from typing import NamedTuple

from store import layout
from store._kernel import (
    TIMER_TOPIC,
    Appender,
    ReceivedMessage,
    TimerHeap,
    cancel_timed,
    decode,
    deliver_timed,
    roll_timed,
)
from store.appending import repair
from store.consume_queue import ConsumeQueues
from store.errors import MessageRejected, QueueError, StoreBusy, StoreClosed, StorePoisoned, UnknownTopic
from store.file_queue import FileQueue
from store.message_queue import MessageQueue
from store.schedule import real_queue
from store.shared_state import SharedState, arrival_lane_at, queue_slot_at
from store.topic_table import TopicTable

_log = logging.getLogger(__name__)

QUEUE = MessageQueue(TIMER_TOPIC, 0)

LANE = layout.ARRIVAL_LANES - 1
"""The arrival lane on which whoever delivers sleeps; consumers may share it."""

_LONGEST_SLEEP_MS = 500
_PAUSE_AFTER_FAILURE_MS = 10_000
_SLICE = 256
"""Messages that are delivered before new ones are looked at."""
_READ_AT_ONCE = 1 << 13
"""Entries, a multiple of 64."""
_ADVANCE_EVERY = 1 << 13
"""Messages."""
_DONE_TO = layout.TIMER_AT + layout.TIMER_HEADER.at["done_to"]
_CLEARING_TO = layout.TIMER_AT + layout.TIMER_HEADER.at["clearing_to"]
_BITS_AT = layout.TIMER_AT + layout.TIMER_HEADER.size
_FULL = b"\xff"


class Pending(NamedTuple):
    """A message that waits for its time."""

    message_id: str
    topic: str
    """That it is for."""
    queue_id: int
    """Of that topic."""
    due_ms: int
    """Milliseconds since 1970."""
    queue_offset: int
    """Of the record that waits, in ``rmq_sys_wheel_timer``."""


class Timer:
    """What waits for its time in one open store. :meth:`run` is for the housekeeper, the rest for everybody."""

    def __init__(
        self,
        state: SharedState,
        topics: TopicTable,
        log_files: FileQueue,
        consume_queues: ConsumeQueues,
        make_appender: Callable[[], Appender],
        find: Callable[[str], ReceivedMessage | None],
        wait_until_flushed: Callable[[int], None],
        lock_timeout_ms: int,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._state = state
        self._topics = topics
        self._log_files = log_files
        self._consume_queues = consume_queues
        self._make_appender = make_appender
        self._find = find
        self._wait_until_flushed = wait_until_flushed
        self._lock_timeout_ms = lock_timeout_ms
        self.now_ms = now_ms
        self._bits = layout.TIMER_BITS
        self._appender: Appender | None = None
        self._heap = TimerHeap()
        self._filled_to = 0
        self._since_advance = 0

    # --- delivering -------------------------------------------------------------------------------

    def run(self, ended: Event) -> None:
        """Deliver what is due until ``ended`` is set and the lane signalled; failures are tried again."""
        self._heap, self._filled_to = TimerHeap(), 0
        lane_at = arrival_lane_at(LANE)
        while True:
            seen = self._state.words.load32(lane_at)
            if ended.is_set():
                break
            pause_ms = self._look()
            if pause_ms > 0:
                self._state.words.wait(lane_at, seen, pause_ms)
        self._heap = TimerHeap()

    def look(self) -> int:
        """Deliver what is due, so many at most; return in how many ms to look again."""
        try:
            end = self._topics.max_offset(QUEUE)
        except UnknownTopic:
            return _LONGEST_SLEEP_MS
        self._fill(end)
        delivered = self._deliver_due()
        self._since_advance += delivered
        if self._since_advance >= _ADVANCE_EVERY or (self._since_advance and not delivered):
            self.advance()
        if delivered == _SLICE or self._has_come():
            return 0
        due = self._heap.next_due
        return _LONGEST_SLEEP_MS if due is None else min(max(due - self.now_ms(), 0), _LONGEST_SLEEP_MS)

    def _look(self) -> int:
        try:
            return self.look()
        except StoreClosed:
            pass  # this process leaves; another one goes on
        except StoreBusy as error:
            _log.info("the timer will go on next time: %s", error)
        except (QueueError, OSError) as error:
            if not isinstance(error, StorePoisoned):  # which every sender is told
                _log.error("the timer waits for %d s: %s", _PAUSE_AFTER_FAILURE_MS // 1000, error)
            return _PAUSE_AFTER_FAILURE_MS
        return _LONGEST_SLEEP_MS

    def _has_come(self) -> bool:
        """Ask to be woken by the next message of the timer; tell whether there is one already."""
        at = queue_slot_at(self._topics.slot(QUEUE)) + layout.QUEUE_SLOT.at["waiting_lanes"]
        self._state.words.set_bits(at, 1 << LANE)
        return self._topics.max_offset(QUEUE) > self._filled_to

    def _fill(self, end: int) -> None:
        """Enter the due times of messages that have come."""
        self._filled_to = max(self._filled_to, self._begin())
        while self._filled_to < end:
            unclear = self._fill_part(self._heap, self._filled_to, end)
            self._filled_to = min(end, self._part_end(self._filled_to))
            for number in unclear:
                self._enter_unclear(number)

    def _fill_part(self, heap: TimerHeap, start: int, end: int) -> list[int]:
        stop = min(end, self._part_end(start))
        if self._are_done(start, stop):
            return []
        entries = self._consume_queues[QUEUE].entry_bytes(start, stop)
        return heap.fill(entries, start, self._state.mapping, layout.TIMER_AT, self._bits)

    def _part_end(self, start: int) -> int:
        """Return where a part of the entries ends, which stands in one file and in one turn of the ring."""
        first = self._consume_queues[QUEUE].first_entry_of(start)
        file_end = first + self._consume_queues[QUEUE].entries_per_file
        turn_end = start - start % self._bits + self._bits
        return min(file_end, turn_end, start - start % _READ_AT_ONCE + _READ_AT_ONCE)

    def _enter_unclear(self, number: int) -> None:
        """Enter a message whose entry was made by a broker, with a hash for its due time; an operation is done."""
        message = self.message(number)
        due_ms = 0 if message is None else message.tags_code
        if due_ms > layout.MOST_TAGS_CODE:
            self._heap.push(due_ms, number)
        else:
            if message is not None and "TIMER_DEL_UNIQKEY" not in message.properties:
                _log.error("message %d of the timer does not say when it is due, and is stepped over", number)
            self._mark(number)

    def _deliver_due(self) -> int:
        """Deliver up to a slice; return how many were due."""
        due = self._heap.pop_due(self.now_ms(), _SLICE)
        for index, (_, number) in enumerate(due):
            try:
                self._deliver(number)
            except BaseException:
                for due_ms, left in due[index:]:
                    self._heap.push(due_ms, left)
                raise
        return len(due)

    def _deliver(self, number: int) -> None:
        if self.is_done(number):
            return
        message = self.message(number)
        target = None if message is None else real_queue(message)
        if message is not None and target is not None:
            try:
                self._topics.make_lost(target)
                deliver_timed(self._appending(), message, target.topic, target.queue_id)
            except MessageRejected as error:
                _log.error("%s", error)
            else:
                return
        _log.error("message %d of the timer cannot be delivered, and is stepped over", number)
        self._mark(number)

    # --- rolling ----------------------------------------------------------------------------------

    def roll_below(self, commit_log_offset: int) -> None:
        """Append what waits below an offset of the log again, durably: its file is about to be removed.

        Raises what an append raises, and NotFlushed.
        """
        try:
            known = range(self._begin(), self._topics.max_offset(QUEUE))
        except UnknownTopic:
            return
        end = min(self._consume_queues[QUEUE].end_below(commit_log_offset), known.stop)
        rolled_to = 0
        for number in range(known.start, end):
            message = None if self.is_done(number) else self.message(number)
            if message is not None and message.tags_code > layout.MOST_TAGS_CODE:
                result = roll_timed(self._appending(), message)
                rolled_to = result.commit_log_end if result is not None else self._state.published_to
        if rolled_to:
            self._wait_until_flushed(rolled_to)

    # --- for everybody ----------------------------------------------------------------------------

    def pending(self) -> Iterator[Pending]:
        """Yield the messages that wait now, the next one first; those that end meanwhile may be left out."""
        heap = TimerHeap()
        try:
            start, end = self._begin(), self._topics.max_offset(QUEUE)
        except UnknownTopic:
            return
        while start < end:
            for number in self._fill_part(heap, start, end):
                message = self.message(number)
                if message is not None and message.tags_code > layout.MOST_TAGS_CODE:
                    heap.push(message.tags_code, number)
            start = self._part_end(start)
        while popped := heap.pop_due(2**63 - 1, _SLICE):
            for due_ms, number in popped:
                message = None if self.is_done(number) else self.message(number)
                target = None if message is None else real_queue(message)
                if message is not None and target is not None:
                    yield Pending(message.message_id, target.topic, target.queue_id, due_ms, number)

    def cancel(self, message_id: str, appender: Appender) -> bool:
        """Cancel a message that waits: it will not be delivered. False when it does not wait, or was never sent.

        The index is brought up to date first. Raises what an append and the index raise.
        """
        seen = -1
        while (message := self._find(message_id)) is not None and message.queue_offset != seen:
            seen = message.queue_offset
            if not self.is_done(seen) and cancel_timed(appender, message) is not None:
                return True
        return False  # if it was rolled meanwhile, the next look finds the new one

    def is_done(self, number: int) -> bool:
        """Tell whether a message of the timer is delivered, rolled or cancelled."""
        at, bit = self._place(number)
        done = bool(self._state.words.load(at) & bit)  # first: it is cleared when clearing_to has passed it
        return done or number < self._state.words.load(_CLEARING_TO)

    def message(self, number: int) -> ReceivedMessage | None:
        """Return a message of the timer; None when it is damaged or was removed."""
        try:
            offset = self._consume_queues[QUEUE].entry(number).commit_log_offset
            base = self._log_files.base_of(offset)
            found = decode(self._log_files.mapping(base), offset - base, offset)
        except FileNotFoundError:
            return None
        if not isinstance(found, ReceivedMessage):
            return None
        place = MessageQueue(found.topic, found.queue_id), found.queue_offset
        return found if place == (QUEUE, number) else None

    # --- the bits ---------------------------------------------------------------------------------

    def advance(self) -> None:
        """Move ``done_to`` over messages that are done. Raises StoreBusy, StoreCorrupt."""
        self._since_advance = 0
        target = self._done_up_to(self._topics.min_offset(QUEUE), self._topics.max_offset(QUEUE))
        if target == self._state.words.load(_DONE_TO):
            return
        with self._state.locked(self._state.append_mutex, self._lock_timeout_ms):
            repair(self._state, self._log_files, self._consume_queues, self._topics)
            done_to = max(self._state.words.load(_DONE_TO), self._state.words.load(_CLEARING_TO))
            self._state.words.store(_CLEARING_TO, max(target, done_to))
            self._clear(self._state.words.load(_DONE_TO), max(target, done_to))
            self._state.words.store(_DONE_TO, max(target, done_to))

    def _clear(self, start: int, stop: int) -> None:
        while start < stop:
            end = min(stop, start - start % self._bits + self._bits)
            at = _BITS_AT + start % self._bits // 8
            self._state.put_bytes(at, bytes((end - start) // 8))
            start = end

    def _done_up_to(self, low: int, high: int) -> int:
        """Return the multiple of 64 below which every message is done, or was removed."""
        done_to = max(self._state.words.load(_CLEARING_TO), low - low % 64)
        while done_to < high:
            stop = min(high - high % 64, done_to - done_to % _READ_AT_ONCE + _READ_AT_ONCE)
            stop = min(stop, done_to - done_to % self._bits + self._bits)
            bits = self._bits_of(done_to, stop)
            full = len(bits) - len(bits.lstrip(_FULL))
            done_to += full - full % 8 << 3
            if full < len(bits) or not bits:
                break
        return done_to

    def _are_done(self, start: int, stop: int) -> bool:
        """Tell whether messages of one turn of the ring are all known to be done, where they fill words."""
        if stop <= self._state.words.load(_CLEARING_TO):
            return True
        return start % 64 == 0 == stop % 64 and not self._bits_of(start, stop).strip(_FULL)

    def _bits_of(self, start: int, stop: int) -> bytes:
        at = _BITS_AT + start % self._bits // 8
        return bytes(memoryview(self._state.mapping)[at : at + (stop - start) // 8])

    def _mark(self, number: int) -> None:
        """Count a message as done that is not appended anywhere."""
        with self._state.locked(self._state.append_mutex, self._lock_timeout_ms):
            if not self.is_done(number):
                self._state.words.set_bits(*self._place(number))
        self._since_advance += 1

    def _place(self, number: int) -> tuple[int, int]:
        """Return the byte of the word with the bit of a message, and that bit."""
        at = number % self._bits
        return _BITS_AT + (at >> 6) * 8, 1 << (at & 63)

    def _begin(self) -> int:
        """Return a queue offset below which no message waits."""
        return max(self._state.words.load(_CLEARING_TO), self._topics.min_offset(QUEUE))

    def _appending(self) -> Appender:
        if self._appender is None:
            self._appender = self._make_appender()
        return self._appender
