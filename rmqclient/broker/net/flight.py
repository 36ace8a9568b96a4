"""Flight: the bytes that requests without an answer and half-sent frames take, of one client and of all.

A request that was answered at once never counts. One that waits is counted as long as somebody holds the object, so
the count is what it says, whichever room keeps the request, whichever thread lets go of it, and whether or not its
client is still there.
"""

from __future__ import annotations

import weakref
from collections import deque
from sys import getsizeof
from typing import Final

from rmqclient.broker.request import Request

REQUEST_BYTES: Final = 2048
"""What a waiting request takes beside its body and the texts of its header, rounded up: its objects."""

_FIELD_BYTES: Final = 112
"""What a field takes beside its letters: two objects."""


class _Waiting(weakref.ref[Request]):
    """A request that waits, and whose bytes it takes."""

    __slots__ = ("of", "size")

    of: OwnFlight
    size: int


class Flight:
    """Bytes of all clients. Its methods are for the thread of the event loop."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._waiting: set[_Waiting] = set()
        self._freed: deque[_Waiting] = deque()

    def wait_for(self, request: Request, of: OwnFlight) -> None:
        """Count a request until nobody has it any more."""
        waiting = _Waiting(request, self._freed.append)  # any thread may let go, so it only notes it
        waiting.of, waiting.size = of, _size_of(request)
        self._waiting.add(waiting)
        of.requests += 1
        of.count(waiting.size)

    def settle(self) -> None:
        """Count nothing more of the requests that nobody has."""
        while self._freed:
            waiting = self._freed.popleft()
            self._waiting.discard(waiting)
            waiting.of.requests -= 1
            waiting.of.count(-waiting.size)


class OwnFlight:
    """Bytes of one client, which are also counted with those of all."""

    __slots__ = ("_all", "_half", "_limit_bytes", "bytes", "requests")

    def __init__(self, of_all: Flight, limit_bytes: int) -> None:
        self._all = of_all
        self._limit_bytes = limit_bytes
        self._half = 0
        self.bytes = 0
        self.requests = 0
        """How many requests wait for their answers; :meth:`settle` makes it exact."""

    def has_room_for(self, body_bytes: int) -> bool:
        """Return whether another request with such a body may wait."""
        self._all.settle()
        more = body_bytes + REQUEST_BYTES
        return self.bytes + more <= self._limit_bytes and self._all.bytes + more <= self._all.limit_bytes

    def is_over(self) -> bool:
        """Return whether more is kept than allowed."""
        self._all.settle()
        return self.bytes > self._limit_bytes or self._all.bytes > self._all.limit_bytes

    def wait_for(self, request: Request) -> None:
        """Count a request until nobody has it any more."""
        self._all.wait_for(request, self)

    def settle(self) -> None:
        """Count nothing more of the requests that nobody has."""
        self._all.settle()

    def hold(self, half_bytes: int) -> None:
        """Count the bytes of a frame that has not come to its end; 0 when there is none."""
        self.count(half_bytes - self._half)
        self._half = half_bytes

    def count(self, more: int) -> None:
        """Count more bytes, or less."""
        self.bytes += more
        self._all.bytes += more


def _size_of(request: Request) -> int:
    """Return what a request takes. Fields that nobody knows are kept with it, too."""
    frame = request.frame
    texts = getsizeof("".join(frame.fields)) + getsizeof("".join(frame.fields.values()))
    fields = getsizeof(frame.fields) + _FIELD_BYTES * len(frame.fields)
    return len(frame.body) + texts + fields + getsizeof(frame.remark) + REQUEST_BYTES
