"""Timer: messages with any delay, to the ms, wait in one queue and go to their own when they are due.

Such a message is a record in ``rmq_sys_wheel_timer``, queue 0, where RocketMQ 5 keeps them, too. Its properties
``REAL_TOPIC`` and ``REAL_QID`` name its own queue; the due time is in ``TIMER_OUT_MS`` and in its entry. Its wait ends
in one of three ways, each of which appends a record that names the message (``TIMER_QUEUE_OFFSET``):

=========  ======================================  ==================================================================
way        what is appended                        why
=========  ======================================  ==================================================================
delivered  a copy, to its own queue                it is due
rolled     a copy, to the end of the timer queue   retention is about to remove its file, or its bit is needed
cancelled  an operation, to the timer queue        a producer asked; ``TIMER_DEL_UNIQKEY`` is the id of the message
=========  ======================================  ==================================================================

**Exactly once.** A bit in the runtime file says whether a message is done. The append of that record sets the bit,
under the append mutex: a process that is killed at any instruction leaves both done or neither, and the next owner of
the mutex settles it. If the bit is already set, the append does nothing. So any process may deliver, roll and cancel at
any time, and exactly one of them succeeds.

**The bits** are a ring: bit ``queue_offset % 16 Mi``. Below ``done_to`` every message is done, and its bit is clear
again for the message one turn later. ``done_to`` is moved under the append mutex, with no append under way;
``clearing_to`` tells the next process how far a move was to go. A message whose queue offset would get the bit of a
waiting message is refused; long before that, the oldest messages are rolled.

**In memory.** The housekeeper keeps the due times, 16 bytes a message, which it reads from the entries when it gets the
role. It sleeps until the next due time, or until a message comes. After a power cut the bits are made again from the
log: :mod:`rmqclient.store.waiting.timer_restore`.

**Time** is the wall clock. A message is never delivered before the clock shows its due time. If the clock is set
forward, messages that become due are delivered at once; if it is set back, they wait. A jump is noticed within half a
second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rmqclient.store import clock, layout
from rmqclient.store.errors import (
    MessageRejected,
    UnknownTopic,
)
from rmqclient.store.kernel._kernel import (
    TIMER_TOPIC,
    Appender,
    ReceivedMessage,
    SendResult,
    TimerHeap,
    cancel_timed,
    deliver_timed,
)
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.native_threads import threading
from rmqclient.store.parts import Parts
from rmqclient.store.runtime.arrivals import ArrivalBell
from rmqclient.store.runtime.passes import Passes
from rmqclient.store.threads.logs import Log
from rmqclient.store.waiting.due_pump import LONGEST_SLEEP_MS, SLICE, DuePump
from rmqclient.store.waiting.real_queue import real_queue
from rmqclient.store.waiting.timer_bits import QUEUE, TimerBits
from rmqclient.store.waiting.timer_entries import TimerEntries, due_ms_of
from rmqclient.store.waiting.timer_restore import TimerRecord
from rmqclient.store.waiting.timer_rolling import Rolling

_log = Log(__name__)

_RETRY_PREFIX = "%RETRY%"
"""Of the topic of a group's failed messages."""

LANE = layout.ARRIVAL_LANES - 1
"""The arrival lane on which the delivering thread sleeps; consumers may share it."""

_ADVANCE_EVERY = 1 << 13
"""Messages."""
_REAL = (b"REAL_TOPIC", b"REAL_QID")
_MOST_TARGETS = 10_000


class Pending(NamedTuple):
    """A message that waits for its time."""

    message_id: str
    topic: str
    """Topic that the message is for."""
    queue_id: int
    """Queue of that topic."""
    due_ms: int
    """Due time, epoch milliseconds."""
    queue_offset: int
    """Queue offset of the waiting record in ``rmq_sys_wheel_timer``."""


class Timer:
    """The timed messages of one open store. :meth:`run` is for the housekeeper, the other methods for any process."""

    def __init__(
        self,
        parts: Parts,
        oldest: Callable[[MessageQueue], int],
        make_appender: Callable[[], Appender],
        find: Callable[[str, str], ReceivedMessage | None],
        wait_until_flushed: Callable[[int], None],
        now_ms: Callable[[], int] = clock.wall_ms,
    ) -> None:
        self._topics = parts.topics
        self._state = parts.state
        self._make_appender = make_appender
        self._find = find
        self.now_ms = now_ms
        self.bits = bits = TimerBits(parts)
        self._passes = Passes(parts.state)
        self._targets: dict[tuple[str, ...], MessageQueue] = {}
        self._bell = ArrivalBell(parts.state, parts.topics.slot, LANE)
        self.wake = self._bell.ring
        """Makes :meth:`run` look again, and see that it was ended."""
        self._entries = TimerEntries(parts, bits, oldest)
        self.message = self._entries.message
        self._rolling = Rolling(parts, bits, self._entries, self._appending, self._deliver, wait_until_flushed)
        self.roll_below = self._rolling.roll_below
        self.let_go = self._rolling.let_go
        self._record = TimerRecord(parts, bits, wait_until_flushed)
        self.persist = self._record.persist
        self._appender: Appender | None = None
        self._heap = TimerHeap()
        self._filled_to = 0
        self._unclear = deque[int]()
        self._since_advance = 0

    # --- delivering -------------------------------------------------------------------------------

    def run(self, ended: threading.Event) -> None:
        """Deliver what is due until ``ended`` is set and :meth:`wake` called; failures are logged and tried again."""
        self._heap, self._filled_to, self._unclear = TimerHeap(), 0, deque()
        pump = DuePump("the timer", self._passes.watched("delivering timed messages", self.look))
        while True:
            heard = self._bell.heard()
            if ended.is_set():
                break
            pause_ms = pump.look()
            if pause_ms > 0:
                self._bell.wait(heard, clock.real_s_to(pause_ms))
        self._heap = TimerHeap()

    def look(self) -> int:
        """Deliver what is due, up to a slice; return in how many ms to look again. Raises what an append raises."""
        try:
            end = self._topics.max_offset(QUEUE)
        except UnknownTopic:
            return LONGEST_SLEEP_MS
        self._fill(end)
        self._state.timer_next_due = self._heap.next_due or 0  # what is late can be seen while it is delivered
        delivered = self._deliver_due()
        self._since_advance += delivered
        if self._since_advance >= _ADVANCE_EVERY or (self._since_advance and not delivered):
            self._since_advance = 0
            self.bits.advance()
        if end - self.bits.done_to > self.bits.ring // 8 * 7:
            self._rolling.make_room()
        if delivered == SLICE:
            return 0
        self._bell.arm(QUEUE)
        if self._topics.max_offset(QUEUE) > self._filled_to:  # a message came before the bell was armed
            return 0
        due = self._heap.next_due
        self._state.timer_next_due = due or 0
        return LONGEST_SLEEP_MS if due is None else max(due - self.now_ms(), 0)

    def _fill(self, end: int) -> None:
        """Enter the due times of new messages."""
        self._filled_to = max(self._filled_to, self.bits.begin)
        self._enter_unclear()
        while self._filled_to < end:
            self._unclear += self._entries.fill(self._heap, self._filled_to, end)
            self._filled_to = min(end, self._entries.part_end(self._filled_to))
            self._enter_unclear()

    def _enter_unclear(self) -> None:
        """Enter the messages whose entries do not say when they are due. What fails is tried again by the next look."""
        while self._unclear:
            self._enter(self._unclear[0])
            self._unclear.popleft()

    def _enter(self, number: int) -> None:
        """Enter a message whose entry has a hash instead of the due time; an operation is done.

        A broker makes such entries, and so does this library for a time in January 1970, which looks like a hash.
        """
        message = self.message(number)
        due_ms = 0 if message is None else due_ms_of(message)
        if due_ms:
            self._heap.push(due_ms, number)
        else:
            if message is not None and "TIMER_DEL_UNIQKEY" not in message.properties:
                _log.error("message %d of the timer does not say when it is due, and is stepped over", number)
                self._passes.step_over()
            self._step_over(number)

    def _deliver_due(self) -> int:
        """Deliver up to a slice of messages; return how many were due."""
        due = self._heap.pop_due(self.now_ms(), SLICE)
        for index, (_, number) in enumerate(due):
            try:
                self._deliver(number)
            except BaseException:
                for due_ms, left in due[index:]:
                    self._heap.push(due_ms, left)
                raise
        return len(due)

    def _deliver(self, number: int) -> None:
        if self.bits.is_done(number):
            return
        message = self.message(number)
        target = None if message is None else self._target_of(message)
        if message is not None and target is not None:
            try:
                deliver_timed(self._appending(), message, target.topic, target.queue_id)
            except MessageRejected as error:
                _log.error("%s", error)
            else:
                return
        if not self.bits.is_done(number):  # another process may have delivered and removed it
            _log.error("message %d of the timer cannot be delivered, and is stepped over", number)
            self._passes.step_over()
            self._step_over(number)

    def _target_of(self, message: ReceivedMessage) -> MessageQueue | None:
        """Return the queue that a message waits for, made if it was lost; None if it names no valid queue."""
        named = tuple(message.some_properties(_REAL).values())
        target = self._targets.get(named)
        if target is None and (target := real_queue(message)) is not None:
            self._topics.make_lost(target)
            if len(self._targets) < _MOST_TARGETS:
                self._targets[named] = target
        return target

    def _step_over(self, number: int) -> None:
        self.bits.mark(number)
        self._since_advance += 1

    # --- for everybody ----------------------------------------------------------------------------

    def pending(self) -> Iterator[Pending]:
        """Yield the waiting messages, the next one first; a message whose wait ends meanwhile may be left out."""
        heap = TimerHeap()
        try:
            start, end = self.bits.begin, self._topics.max_offset(QUEUE)
        except UnknownTopic:
            return
        while start < end:
            for number in self._entries.fill(heap, start, end):
                message = self.message(number)
                due_ms = 0 if message is None else due_ms_of(message)
                if due_ms:
                    heap.push(due_ms, number)
            start = self._entries.part_end(start)
        while popped := heap.pop_due(2**63 - 1, SLICE):
            for due_ms, number in popped:
                message = None if self.bits.is_done(number) else self.message(number)
                target = None if message is None else real_queue(message)
                if message is not None and target is not None:
                    yield Pending(message.message_id, target.topic, target.queue_id, due_ms, number)

    def has_due(self) -> bool:
        """Tell whether a message is due and not delivered."""
        first = next(self.pending(), None)
        return first is not None and first.due_ms <= self.now_ms()

    def cancel(self, message_id: str, appender: Appender, topic: str | None = None) -> bool:
        """Cancel a waiting message, which is then never delivered. False if no such message waits.

        A message that waits for its retry was delivered before, and is not cancelled. With ``topic``, only a message
        that waits for this topic is.

        The index is brought up to date first. Raises what an append and the index raise.
        """
        seen = -1
        while (message := self._find(message_id, TIMER_TOPIC)) is not None and message.queue_offset != seen:
            seen = message.queue_offset
            if not due_ms_of(message):
                break  # the id of an operation
            waits_for = message.properties.get("REAL_TOPIC", "")
            if waits_for.startswith(_RETRY_PREFIX) or topic not in (None, waits_for):
                break
            if not self.bits.is_done(seen) and cancel_timed(appender, message) is not None:
                return True
        return False  # if it was rolled meanwhile, the next round finds the new one

    def deliver_early(self, message: ReceivedMessage, appender: Appender) -> SendResult | None:
        """Deliver a message of the timer before its time. None if its wait has ended. Raises what an append raises."""
        target = None if self.bits.is_done(message.queue_offset) else self._target_of(message)
        return None if target is None else deliver_timed(appender, message, target.topic, target.queue_id)

    def _appending(self) -> Appender:
        if self._appender is None:
            self._appender = self._make_appender()
        return self._appender
