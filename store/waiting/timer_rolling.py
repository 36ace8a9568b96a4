"""Timer rolling: waiting messages are appended again, because their file is to be removed or their bit is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NoReturn

from rmqclient.store.errors import MessageRejected, StoreClosed, TimerFull, UnknownTopic
from rmqclient.store.kernel._kernel import Appender, ReceivedMessage, roll_timed
from rmqclient.store.parts import Parts
from rmqclient.store.threads.logs import Log
from rmqclient.store.waiting.timer_bits import QUEUE, TimerBits
from rmqclient.store.waiting.timer_entries import TimerEntries, due_ms_of

_log = Log(__name__)

_ROLLED_AT_ONCE = 1 << 13
"""Queue offsets, done or not, that are looked at to make room."""


class Rolling:
    """Rolls the messages of one open store. ``deliver`` delivers a message by its queue offset."""

    def __init__(
        self,
        parts: Parts,
        bits: TimerBits,
        entries: TimerEntries,
        appending: Callable[[], Appender],
        deliver: Callable[[int], None],
        wait_until_flushed: Callable[[int], None],
    ) -> None:
        self._state = parts.state
        self._topics = parts.topics
        self._consume_queues = parts.consume_queues
        self._bits = bits
        self._entries = entries
        self._appending = appending
        self._deliver = deliver
        self._wait_until_flushed = wait_until_flushed

    def let_go(self) -> None:
        """Forget the timer, which refers to this; nothing is rolled after this. A second call is harmless."""
        self._appending = self._deliver = _gone

    def roll_below(self, commit_log_offset: int) -> None:
        """Append again, durably, the messages that wait below a commit log offset: their file will be removed.

        Raises what an append raises, and NotFlushed.
        """
        try:
            known = range(self._bits.begin, self._topics.max_offset(QUEUE))
        except UnknownTopic:
            return
        end = min(self._consume_queues[QUEUE].end_below(commit_log_offset), known.stop)
        if self._roll(range(known.start, end)):
            self._wait_until_flushed(self._state.published_to)

    def _roll(self, numbers: range) -> int:
        """Append again those of some messages that still wait; return how many."""
        rolled = 0
        for number in self._entries.waiting(numbers):
            message = self._entries.message(number)
            if message is not None and due_ms_of(message):
                self._roll_one(message)
                rolled += 1
        return rolled

    def _roll_one(self, message: ReceivedMessage) -> None:
        """Append a message again, to wait on; one that has no room for that is delivered at once, and not lost."""
        try:
            roll_timed(self._appending(), message)
        except MessageRejected as error:
            _log.error("message %d of the timer is delivered early: %s", message.queue_offset, error)
            self._deliver(message.queue_offset)

    def make_room(self) -> None:
        """Roll the oldest messages if few of them still wait, so that their bits can be used again."""
        start = self._bits.begin
        numbers = range(start, min(start + _ROLLED_AT_ONCE, self._topics.max_offset(QUEUE)))
        waiting = sum(1 for _ in self._entries.waiting(numbers))
        if waiting <= len(numbers) // 4 * 3:  # rolling more of them would win little
            with contextlib.suppress(TimerFull):  # then deliveries make room
                self._roll(numbers)
            self._bits.advance()


def _gone(*_: object) -> NoReturn:
    raise StoreClosed("the store is closed")
