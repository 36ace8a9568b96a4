"""Once: a message is appended with a key, unless a message sent with that key is in the log.

The log alone says what was sent. The last key of the message is the sender's key with ``once-`` in front. So the index
leads to the message, and the other keys of a topic, which name things instead of sends, never match.

=======================================================  ========================================================
step                                                     a process that dies then leaves
=======================================================  ========================================================
lock one of 1,024 bytes, chosen by topic and key         nothing: the kernel unlocks it
settle the append of a process that died, which may      an append that the next sender settles
have been for this key
bring the index up to what is published                  an index that the next sender brings up to date
look for the key; end here if its message is there       nothing
append, unlock                                           the message, found from then on, or nothing, and the
                                                         next sender of the key appends
=======================================================  ========================================================

A candidate of the index counts if its record is whole, has this key, and is in this topic or waits for this topic in a
delay level or in the timer. So neither keys with the same hash nor a damaged index make an unsent message look sent. A
message that a power cut takes from the log takes its key along, and is sent again.

A window is measured from the born time, which copies keep: a delivery after a delay, or a dead letter sent again,
does not begin a new window. "Now" is the earlier of two times: the wall clock, and the wall clock at the opening plus
what CLOCK_BOOTTIME has counted since. So setting the clock, either way, only makes windows longer, except for a process
that opens the store after the clock was set forward. Without a window, the default, no clock is read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from datetime import timedelta

from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import MessageRejected, StoreClosed
from rmqclient.store.files.file_lock import ONCE_BYTES, ONCE_STRIPES
from rmqclient.store.kernel._kernel import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    Condition,
    Message,
    SendResult,
    duplicate_of,
    scope,
)
from rmqclient.store.log import query
from rmqclient.store.log.index_file import IndexFiles
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.parts import Parts
from rmqclient.store.upkeep.retention_rules import Clock

LONGEST_KEY_BYTES = 255

_PREFIX = "once-"
_WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC)
"""Topics in which messages wait that are for another topic [REAL_TOPIC]."""


def with_key(message: Message, key: str) -> Message:
    """Return a message as it is sent with a key. Raises TypeError, and MessageRejected for an invalid key."""
    if not isinstance(key, str):
        raise TypeError(f"key {key!r} is not a str but {type(key).__name__}: give {str(key)!r}")
    if not key or not key.isprintable() or " " in key or len(key.encode()) > LONGEST_KEY_BYTES:
        raise MessageRejected(
            f"key={key[:80]!r}: give 1 to {LONGEST_KEY_BYTES} bytes of printable characters without a space, which "
            "separates keys on disk; a hash of what is longer will do"
        )
    keys = [*message.keys, _PREFIX + key]
    return Message(
        message.topic, message.body, tags=message.tags, keys=keys, properties=message.properties, flag=message.flag
    )


class Once:
    """Which keys were sent, for one process.

    ``settle`` finishes or undoes an interrupted append, ``build_index`` indexes everything published. A sender waits
    ``lock_timeout_ms`` for another sender with the same lock byte.
    """

    def __init__(
        self,
        parts: Parts,
        index_files: IndexFiles,
        *,
        settle: Callable[[], object],
        build_index: Callable[[], object],
        clock: Clock | None = None,
    ) -> None:
        self._state = parts.state
        self._lock = parts.lock
        self._topics = parts.topics
        self._log_files = parts.log_files
        self.index_files = index_files
        self._settle = settle
        self._build_index = build_index
        self._timeout_s = parts.config.lock_timeout_ms / 1_000
        self._clock = clock or Clock()
        self._began = self._clock.wall_ms() - self._clock.boottime_ms()
        self._senders = 0
        self._is_closed = False
        self._changed = Condition()

    @scope
    def alone(self, topic: str, key: str) -> Iterator[None]:
        """Keep all other senders from sending with this key during the block. Raises StoreBusy, StoreClosed."""
        is_counted = False
        try:
            with self._changed:
                if self._is_closed:
                    raise StoreClosed(f"the store of {self._lock.path} was closed")
                self._senders += 1
                is_counted = True
            with self._lock.held(ONCE_BYTES + _stripe(topic, key), self._timeout_s):
                yield
        finally:
            if is_counted:
                with self._changed:
                    self._senders -= 1
                    self._changed.notify_all()

    def find(self, topic: str, key: str, within: timedelta | None) -> SendResult | None:
        """Return where the message of a topic stands that was sent with a key, within a time if given, or None.

        Raises StoreFull, StoreBusy, StoreCorrupt, LimitReached, DiskFailed.
        """
        begin_ms = 0 if within is None else self.now_ms() - within // timedelta(milliseconds=1)
        self._settle()
        self._build_index()
        known = range(self._state.min_offset, self._state.published_to)
        every_time = 0, query.END_OF_TIME  # an index file is believed about times only while no clock is set
        for place in filter(self._topics.__contains__, (topic, *_WAITING_TOPICS)):
            for found in query.by_key(self._log_files, self.index_files, known, place, _PREFIX + key, every_time):
                is_for_topic = place == topic or found.properties.get("REAL_TOPIC") == topic
                if is_for_topic and found.born_timestamp >= begin_ms:
                    return duplicate_of(found, MessageQueue(found.topic, found.queue_id))
        reach(CrashPoint.ONCE_NOT_FOUND)
        return None

    def now_ms(self) -> int:
        """Return the time in ms, unmoved by a clock that was set forward since the opening."""
        return min(self._clock.wall_ms(), self._began + self._clock.boottime_ms())

    def close(self) -> None:
        """Refuse new senders and wait for the present ones: closing the lock file would end their locks, too."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: not self._senders, self._timeout_s)


def _stripe(topic: str, key: str) -> int:
    return zlib.crc32(f"{topic}#{key}".encode()) % ONCE_STRIPES
