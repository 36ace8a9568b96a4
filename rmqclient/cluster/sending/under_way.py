"""Under way: limits on a producer's sends without an outcome yet.

Otherwise a program that sends faster than its brokers answer would fill its memory. RocketMQ's clients have the same
two limits. [DefaultMQProducer.backPressureForAsyncSendNum, backPressureForAsyncSendSize]
"""

from __future__ import annotations

from typing import Final

from rmqclient.errors import ProducerFull, StoreClosed
from rmqclient.store.threads.locks import Condition

MOST_SENDS: Final = 10_000
MOST_BYTES: Final = 100 * 1024 * 1024
"""Bytes of bodies and properties under way, at most; a larger message is sent alone."""


class UnderWay:
    """Counts asynchronous sends. Safe for threads. Sizes are in bytes."""

    __slots__ = ("_bytes", "_changed", "_closed", "_sends", "_unfinished")

    def __init__(self) -> None:
        self._changed = Condition()
        self._sends = 0
        self._bytes = 0
        self._unfinished = 0
        self._closed = False

    def begin(self, size: int, timeout_s: float) -> None:
        """Count a send; waits up to ``timeout_s`` for the limits. Raises ProducerFull, StoreClosed."""
        with self._changed:
            if not (self._closed or self._has_room(size)):
                self._changed.wait_for(lambda: self._closed or self._has_room(size), timeout_s)
            if self._closed:
                raise StoreClosed("this producer was closed")
            if not self._has_room(size):
                raise ProducerFull(
                    f"{self._sends:,} sends with {self._bytes:,} bytes are under way, and a producer has room for "
                    f"{MOST_SENDS:,} with {MOST_BYTES:,} bytes; none came in {timeout_s:g} s: send more slowly, or "
                    "await some of them first"
                )
            self._sends += 1
            self._unfinished += 1
            self._bytes += size

    def end(self, size: int) -> None:
        """Stop counting a send, whose outcome is known."""
        with self._changed:
            self._sends -= 1
            self._bytes -= size
            self._changed.notify_all()

    def finish(self) -> None:
        """Note that the outcome of a send was taken."""
        with self._changed:
            self._unfinished -= 1
            if self._closed:
                self._changed.notify_all()

    def close(self) -> None:
        """Refuse more sends, and wait until every outcome was taken. Closing twice does nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._unfinished == 0)

    def _has_room(self, size: int) -> bool:
        return self._sends < MOST_SENDS and (not self._sends or self._bytes + size <= MOST_BYTES)
