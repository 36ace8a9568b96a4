"""Timer bits: which messages of the timer are done. A ring in the runtime file that every process may change.

Bit ``queue_offset % 16 Mi`` says that a message was delivered, rolled or cancelled. The append that did it sets the
bit, under the append mutex. ``done_to`` moves over full words of 64 bits, and leaves them clear for the messages one
turn later:

=========================  ==========================================================================================
step                       what a death behind it leaves
=========================  ==========================================================================================
take the append mutex      nothing; an interrupted append is settled first, because it may still have to set its bit
``clearing_to`` = the end  messages below it are done, whatever their bits say; the next move clears them
clear the bits             the same
``done_to`` = the end      nothing
=========================  ==========================================================================================

A sender may use the bits up to one turn above ``done_to``, except a reserve for rolls and cancels.

Invariant, checked by ``rmq store verify``:

13. ``done_to`` and ``clearing_to`` are multiples of 64, in this order, and not above the max offset of the timer's
    queue; no bit is set for a message at or above that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqclient.store import layout
from rmqclient.store.append.appending import repair
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.kernel._kernel import TIMER_TOPIC
from rmqclient.store.layout import IDLE
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.parts import Parts
from rmqclient.store.runtime.shared_state import SharedState

QUEUE = MessageQueue(TIMER_TOPIC, 0)
"""The queue in which timed messages wait."""

WORD = 64

_DONE_TO = layout.TIMER_AT + layout.TIMER_HEADER.at["done_to"]
_CLEARING_TO = layout.TIMER_AT + layout.TIMER_HEADER.at["clearing_to"]
_BITS_AT = layout.TIMER_AT + layout.TIMER_HEADER.size
_READ_AT_ONCE = 1 << 16
_FULL = b"\xff"


class Done(NamedTuple):
    """Which messages of the timer are done."""

    done_to: int
    """All messages below this queue offset, a multiple of 64, are done."""
    end: int
    """Queue offset that the next message will get."""
    bits: bytes
    """The bits of the messages between, in whole words."""


def places(start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield the first byte and the number of bytes of the bits of some messages, in whole words."""
    ring = layout.TIMER_BITS
    stop += -stop % WORD
    while start < stop:
        end = min(stop, start - start % ring + ring)
        yield _BITS_AT + start % ring // 8, (end - start) // 8
        start = end


def done_in(state: SharedState, end: int) -> Done | None:
    """Copy the bits of a runtime file, up to the message ``end``; None if a word of the timer is damaged."""
    while True:
        done_to = state.words.load(_CLEARING_TO)
        if done_to % WORD or not end - layout.TIMER_BITS <= done_to <= end:
            return None
        memory = memoryview(state.mapping)
        bits = b"".join(bytes(memory[at : at + count]) for at, count in places(done_to, end))
        if state.words.load(_CLEARING_TO) == done_to:  # otherwise some may have been cleared meanwhile
            return Done(done_to, end, bits)


def set_bits_to(state: SharedState, done_to: int) -> int:
    """Return the queue offset behind the last message whose bit is set, in the turn from ``done_to`` on."""
    memory, stop = memoryview(state.mapping), done_to + layout.TIMER_BITS
    for at, count in reversed([*places(done_to, stop)]):
        bits = bytes(memory[at : at + count]).rstrip(b"\0")
        if bits:
            return stop - 8 * (count - len(bits)) - 8 + bits[-1].bit_length()
        stop -= 8 * count
    return done_to


def put(state: SharedState, done: Done) -> None:
    """Fill the bits of a new runtime file."""
    bits = done.bits
    for at, count in places(done.done_to, done.end):
        state.put_bytes(at, bits[:count])
        bits = bits[count:]
    state.words.store(_DONE_TO, done.done_to)
    state.words.store(_CLEARING_TO, done.done_to)


class TimerBits:
    """The bits of one open store."""

    def __init__(self, parts: Parts) -> None:
        self._state = parts.state
        self._topics = parts.topics
        self._log_files = parts.log_files
        self._consume_queues = parts.consume_queues
        self._lock_timeout_ms = parts.config.lock_timeout_ms
        self.ring = layout.TIMER_BITS

    @property
    def begin(self) -> int:
        """Queue offset below which no message waits. Raises UnknownTopic before the first timed message."""
        return max(self._state.words.load(_CLEARING_TO), self._topics.min_offset(QUEUE))

    @property
    def done_to(self) -> int:
        """Queue offset at which the turn of the bits that is in use begins."""
        return self._state.words.load(_DONE_TO)

    def is_done(self, number: int) -> bool:
        """Tell whether a message was delivered, rolled or cancelled."""
        at, bit = self._place(number)
        is_set = bool(self._state.words.load(at) & bit)  # read first: it is cleared after clearing_to has passed it
        return is_set or number < self._state.words.load(_CLEARING_TO)

    def are_done(self, start: int, stop: int) -> bool:
        """Tell whether messages of one turn are all known to be done; False unless they fill whole words."""
        if stop <= self._state.words.load(_CLEARING_TO):
            return True
        return start % WORD == 0 == stop % WORD and not self._copy(start, stop).strip(_FULL)

    def mark(self, number: int) -> None:
        """Mark a message as done without an append. Raises StoreBusy."""
        with self._state.locked(self._state.append_mutex, self._lock_timeout_ms):
            if not self.is_done(number):
                self._state.words.set_bits(*self._place(number))

    def advance(self) -> None:
        """Move ``done_to`` over finished messages. Raises StoreBusy, StoreCorrupt."""
        low = self._topics.min_offset(QUEUE)
        for number in range(max(self.begin - WORD, low - low % WORD), low):  # removed: no append will set their bits
            if not self.is_done(number):
                self.mark(number)
        target = self._done_up_to(low, self._topics.max_offset(QUEUE))
        if target <= self.done_to:
            return
        with self._state.locked(self._state.append_mutex, self._lock_timeout_ms):
            repair(self._state, self._log_files, self._consume_queues, self._topics)
            target = max(target, self._state.words.load(_CLEARING_TO))
            self._state.words.store(_CLEARING_TO, target)
            reach(CrashPoint.TIMER_CLEARING)
            for at, count in places(self.done_to, target):
                self._state.put_bytes(at, bytes(count))
            reach(CrashPoint.TIMER_CLEARED)
            self._state.words.store(_DONE_TO, target)

    def counted_to(self) -> int:
        """Return a commit log offset below which the bits count every record that ends a wait."""
        published_to = self._state.published_to
        return min(published_to, self._state.append_from) if self._state.append_stage != IDLE else published_to

    def _done_up_to(self, low: int, high: int) -> int:
        """Return the multiple of 64 below which every message is done, or was removed."""
        done_to = max(self._state.words.load(_CLEARING_TO), low - low % WORD)
        while done_to < (last := high - high % WORD):
            turn_end = done_to - done_to % self.ring + self.ring
            bits = self._copy(done_to, min(last, turn_end, done_to + _READ_AT_ONCE))
            full = len(bits) - len(bits.lstrip(_FULL))
            done_to += 8 * (full - full % 8)
            if full < len(bits):
                break
        return done_to

    def _copy(self, start: int, stop: int) -> bytes:
        at = _BITS_AT + start % self.ring // 8
        return bytes(memoryview(self._state.mapping)[at : at + (stop - start) // 8])

    def _place(self, number: int) -> tuple[int, int]:
        """Return the byte of the word with the bit of a message, and that bit."""
        at = number % self.ring
        return _BITS_AT + at // WORD * 8, 1 << at % WORD
