"""Prefetch: the messages of one queue that were pulled and not taken, and those that were taken and not finished."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Final

from rmqclient.cluster.groups.bells import ClusterBell
from rmqclient.message import ReceivedMessage

BATCH: Final = 32
"""Messages of one answer, at most. [pullBatchSize]"""

_AHEAD_MESSAGES: Final = 8 * BATCH
"""Prefetched messages at which pulling stops; one more answer may follow."""
_AHEAD_BYTES: Final = 8 << 20


class Prefetch:
    """The messages of one queue from ``offset`` on. Safe for threads; taking is for one thread at a time."""

    def __init__(self, offset: int) -> None:
        self.next_offset = offset
        """Queue offset of the next message to take."""
        self.max_offset = offset
        """Queue offset after the last message, from the broker's last answer."""
        self.has_unopened = False
        """Whether a message was pulled whose body cannot be decompressed."""
        self._lock = threading.Lock()
        self._ahead: deque[ReceivedMessage] = deque()
        self._ahead_bytes = 0
        self._pulled_to = offset
        self._unfinished: dict[int, int] = {}  # queue offset → number of unfinished messages, in the queue's order
        self._armed: ClusterBell | None = None

    @property
    def ahead(self) -> int:
        """Number of messages that were pulled and not taken."""
        return len(self._ahead)

    @property
    def unfinished(self) -> int:
        """Number of messages that were taken and are not finished."""
        return len(self._unfinished)

    @property
    def finished_to(self) -> int:
        """The queue offset below which every message is finished."""
        with self._lock:
            return next(iter(self._unfinished), self.next_offset)

    @property
    def has_room(self) -> bool:
        """Whether more messages may be pulled."""
        return len(self._ahead) < _AHEAD_MESSAGES and self._ahead_bytes < _AHEAD_BYTES

    def arm(self, bell: ClusterBell) -> bool:
        """Let the next pulled message ring this bell. True if a message can be taken now."""
        self._armed = bell
        return bool(self._ahead)

    def add(self, messages: list[ReceivedMessage], next_offset: int, max_offset: int) -> None:
        """Add the messages of a pull. Those between them and ``next_offset`` did not pass the broker's filter."""
        size = sum([message.size for message in messages])
        with self._lock:
            self._ahead.extend(messages)
            self._ahead_bytes += size
            self._pulled_to = next_offset
            if not self._ahead:
                self.next_offset = next_offset
        self.max_offset = max(max_offset, next_offset)
        self.has_unopened = self.has_unopened or any(message.unopened is not None for message in messages)
        bell = self._armed
        if messages and bell is not None:
            self._armed = None
            bell.ring()

    def skip_to(self, next_offset: int) -> int:
        """Go forwards to an offset unless a message is here; return by how many offsets."""
        with self._lock:
            if self._ahead or self._unfinished or next_offset <= self.next_offset:
                return 0
            skipped = next_offset - self.next_offset
            self.next_offset = self._pulled_to = next_offset
            return skipped

    def take(self, limit: int, span: int) -> list[ReceivedMessage]:
        """Take up to ``limit`` messages, less than ``span`` above :attr:`finished_to`; they are unfinished now."""
        taken: list[ReceivedMessage] = []
        ahead, unfinished = self._ahead, self._unfinished
        with self._lock:  # a message must always be in one of both, or an answer would move the offset over it
            end = next(iter(unfinished), self.next_offset) + span
            while ahead and len(taken) < limit and ahead[0].queue_offset < end:
                taken.append(ahead.popleft())
            if taken:
                self._ahead_bytes -= sum([message.size for message in taken])
                for message in taken:
                    offset = message.queue_offset
                    unfinished[offset] = unfinished.get(offset, 0) + 1
                self.next_offset = ahead[0].queue_offset if ahead else self._pulled_to
        return taken

    def finish(self, offsets: Iterable[int]) -> None:
        """Mark a message at each of these queue offsets finished."""
        unfinished = self._unfinished
        with self._lock:
            for offset in offsets:
                left = unfinished.get(offset, 0) - 1
                if left > 0:  # other messages of a batch that is one record
                    unfinished[offset] = left  # keep its position in the dict, which is in the queue's order
                else:
                    unfinished.pop(offset, None)
