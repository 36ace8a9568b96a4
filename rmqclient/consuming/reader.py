"""Reader: reads a topic without a group, and changes no offset."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rmqclient.message import ReceivedMessage
from rmqclient.opening import Place, open_backend
from rmqclient.store import LONGEST_SLEEP_S, MessageQueue, clock
from rmqclient.store.closing import Closing
from rmqclient.store.errors import MessageExpired
from rmqclient.store.log.inner_batch import opened
from rmqclient.store.log.query import END_OF_TIME

_READ_AT_ONCE = 1_000
"""Messages of one queue."""


class Reader(Closing):
    """Reads the messages of topics; a context manager. ``place`` names a backend as for a PullConsumer."""

    def __init__(self, place: Place) -> None:
        self._backend = open_backend(place, create=False)

    def tail(
        self, *topics: str, start: str | int = "latest", follow: bool = True, until_ms: int | None = None
    ) -> Iterator[ReceivedMessage]:
        """Yield the messages of topics from ``earliest``, ``latest`` or ``-100`` (of each queue).

        A number is a time in ms: the first message stored then or later. With ``follow`` it waits for more for ever,
        woken by arrivals; with ``until_ms`` until that time, and it yields what was stored before. What retention
        removes meanwhile is stepped over. Raises UnknownTopic, ValueError for another ``start``.
        """
        until_ms = END_OF_TIME if until_ms is None else until_ms
        queues = [queue for topic in topics for queue in self._backend.topics.queues(topic)]
        positions = {queue: self._start_offset(queue, start) for queue in queues}
        bell = self._backend.queues.bell()
        while True:
            heard = bell.arm(*positions)
            is_over = clock.wall_ms() > until_ms
            fresh = [message for queue in list(positions) for message in self._before(until_ms, queue, positions)]
            yield from sorted(fresh, key=lambda message: message.commit_log_offset)
            if not positions:
                return
            if not fresh:
                if not follow or is_over:
                    return
                bell.wait(heard, min(LONGEST_SLEEP_S, clock.real_s_to(until_ms + 1)))

    def find(
        self, topic: str, key: str, *, since_ms: int | None = None, until_ms: int | None = None, limit: int = 64
    ) -> list[ReceivedMessage]:
        """Return the messages of a topic that have a key, or a unique key, the newest first. Raises UnknownTopic."""
        self._backend.topics.queues(topic)
        until_ms = until_ms if until_ms is not None else END_OF_TIME
        return self._backend.messages.by_key(topic, key, since_ms or 0, until_ms, limit)

    def close(self) -> None:
        """Leave the backend. Closing twice does nothing."""
        self._backend.close()

    def _before(
        self, until_ms: int, queue: MessageQueue, positions: dict[MessageQueue, int]
    ) -> Iterator[ReceivedMessage]:
        """Yield the next messages of a queue, and leave the queue out of ``positions`` when it has none before then."""
        for message in self._from(queue, positions):
            if message.store_timestamp >= until_ms:
                del positions[queue]
                return
            yield message

    def _from(self, queue: MessageQueue, positions: dict[MessageQueue, int]) -> Iterator[ReceivedMessage]:
        span = self._backend.queues.span(queue)
        end = min(span.max_offset, positions[queue] + _READ_AT_ONCE)
        for offset in range(max(positions[queue], span.min_offset), end):
            positions[queue] = offset + 1
            with contextlib.suppress(MessageExpired):
                yield from opened(self._backend.queues.message_at(queue, offset))

    def _start_offset(self, queue: MessageQueue, start: str | int) -> int:
        if isinstance(start, int):
            return self._backend.queues.offset_by_time(queue, start)
        low, high = self._backend.queues.span(queue)
        if start == "earliest":
            return low
        if start == "latest":
            return high
        if start.startswith("-") and start[1:].isdigit():
            return max(low, high - int(start[1:]))
        raise ValueError(f"start={start!r}: give earliest, latest or a number of messages from the end such as -100")
