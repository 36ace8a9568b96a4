"""Once: a message is appended with a key, unless one that was sent with it is there.

What was sent is known from the log alone. The last of the message's keys is the sender's with ``once-`` in front. So
the index leads to it, and the other keys of a topic, which name things and not sends, are none of these.

=======================================================  ========================================================
step                                                     a process that dies then leaves
=======================================================  ========================================================
lock one of 1,024 bytes, chosen by topic and key         nothing: the kernel unlocks it
settle the append of a process that died, for it may     what the next one settles
have been the one of this key
bring the index up to what is published                  what the next one goes on with
look for the key; end here when its message is there     nothing
append, unlock                                           the message, found from then on, or nothing, and the
                                                         next sender of the key appends
=======================================================  ========================================================

A candidate of the index counts when its record is whole, has this key and is of this topic, or waits for it, in a delay
level or in the timer. So neither keys with the same hash nor a damaged index make a message look sent that was not.
What a power cut takes from the log takes its key along, and is sent again.

A window is measured from the born time, which copies keep: a delivery after a delay, or a dead letter sent again,
begins no new one. "Now" is the earlier of the wall clock, and what it was at the opening and CLOCK_BOOTTIME has counted
since. So a clock that is set, either way, only makes windows longer, but for a process that opens the store after it
was set forward. No window, the default, asks no clock.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import MessageRejected, StoreClosed
from rmqclient.store.files.file_lock import ONCE_BYTES, ONCE_STRIPES
from rmqclient.store.kernel._kernel import SCHEDULE_TOPIC, TIMER_TOPIC, Message, SendResult, duplicate_of
from rmqclient.store.log import query
from rmqclient.store.log.index_file import IndexFiles
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.parts import Parts
from rmqclient.store.upkeep.retention import Clock

LONGEST_KEY_BYTES = 255

_PREFIX = "once-"
_WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC)
"""Where messages wait that are for another topic [REAL_TOPIC]."""


def with_key(message: Message, key: str) -> Message:
    """Return a message as it is sent with a key. Raises MessageRejected for what cannot be one."""
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

    ``settle`` ends an append that was interrupted, ``build_index`` indexes all that is published. ``timeout_ms`` is
    how long a sender waits for another one of the same byte.
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
        self._index_files = index_files
        self._settle = settle
        self._build_index = build_index
        self._timeout_s = parts.config.lock_timeout_ms / 1_000
        self._clock = clock or Clock()
        self._began = self._clock.wall_ms() - self._clock.boottime_ms()
        self._senders = 0
        self._is_closed = False
        self._changed = threading.Condition()

    @contextmanager
    def alone(self, topic: str, key: str) -> Iterator[None]:
        """Keep everybody else from sending with this key, until the end of the block. Raises StoreBusy, StoreClosed."""
        with self._changed:
            if self._is_closed:
                raise StoreClosed(f"the store of {self._lock.path} was closed")
            self._senders += 1
        try:
            with self._lock.held(ONCE_BYTES + _stripe(topic, key), self._timeout_s):
                yield
        finally:
            with self._changed:
                self._senders -= 1
                self._changed.notify_all()

    def find(self, topic: str, key: str, within: timedelta | None) -> SendResult | None:
        """Return where a message of a topic stands that was sent with a key, within a time if one is given, or None.

        Raises StoreFull, StoreBusy, StoreCorrupt, LimitReached, DiskFailed.
        """
        begin_ms = 0 if within is None else self.now_ms() - within // timedelta(milliseconds=1)
        self._settle()
        self._build_index()
        known = range(self._state.min_offset, self._state.published_to)
        every_time = 0, query.END_OF_TIME  # an index file is believed about times only while no clock is set
        for place in filter(self._topics.__contains__, (topic, *_WAITING_TOPICS)):
            for found in query.by_key(self._log_files, self._index_files, known, place, _PREFIX + key, every_time):
                is_for_topic = place == topic or found.properties.get("REAL_TOPIC") == topic
                if is_for_topic and found.born_timestamp >= begin_ms:
                    return duplicate_of(found, MessageQueue(found.topic, found.queue_id))
        reach(CrashPoint.ONCE_NOT_FOUND)
        return None

    def now_ms(self) -> int:
        """Return a time that no clock set forward since the opening has moved."""
        return min(self._clock.wall_ms(), self._began + self._clock.boottime_ms())

    def close(self) -> None:
        """Refuse what comes, and wait for those who are sending: the end of the lock file ends their locks, too."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: not self._senders, self._timeout_s)


def _stripe(topic: str, key: str) -> int:
    return zlib.crc32(f"{topic}#{key}".encode()) % ONCE_STRIPES
