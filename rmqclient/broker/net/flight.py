"""Flight: memory of waiting requests and incomplete frames, of one client and of all.

A request that is answered at once never counts. A waiting one counts until its object is freed. So the count is exact
whichever room keeps the request, whichever thread drops it, and whether or not its client is still connected.
"""

from __future__ import annotations

import weakref
from collections import deque
from sys import getsizeof
from typing import Final

from rmqclient.broker.request import Request

REQUEST_BYTES: Final = 2048
"""Bytes of a waiting request's objects, without its body and the texts of its header; rounded up."""

_FIELD_BYTES: Final = 112
"""Bytes of a field's two objects, without their texts."""


class _Waiting(weakref.ref[Request]):
    """A weak reference to a waiting request, with its size and its client's count."""

    __slots__ = ("of", "size")

    of: OwnFlight
    size: int


class Flight:
    """Bytes of all clients. For the thread of the event loop."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._waiting: set[_Waiting] = set()
        self.freed: deque[_Waiting] = deque()
        """Requests that no object refers to and that still count, until :meth:`settle`."""

    def wait_for(self, request: Request, of: OwnFlight) -> None:
        """Count a request until no object refers to it."""
        waiting = _Waiting(request, self.freed.append)  # any thread may drop it, so this only notes it
        waiting.of, waiting.size = of, _size_of(request)
        self._waiting.add(waiting)
        of.requests += 1
        of.count(waiting.size)

    def settle(self) -> None:
        """Stop counting requests that no object refers to."""
        while self.freed:
            waiting = self.freed.popleft()
            self._waiting.discard(waiting)
            waiting.of.requests -= 1
            waiting.of.count(-waiting.size)


class OwnFlight:
    """Bytes of one client, also counted in those of all."""

    __slots__ = ("_all", "_half", "_limit_bytes", "bytes", "requests")

    def __init__(self, of_all: Flight, limit_bytes: int) -> None:
        self._all = of_all
        self._limit_bytes = limit_bytes
        self._half = 0
        self.bytes = 0
        self.requests = 0
        """Number of requests that wait for their answers; exact after :meth:`Flight.settle`."""

    def has_room_for(self, body_bytes: int) -> bool:
        """Return whether another request with a body of this size may wait."""
        if self._all.freed:
            self._all.settle()
        more = body_bytes + REQUEST_BYTES
        return self.bytes + more <= self._limit_bytes and self._all.bytes + more <= self._all.limit_bytes

    def is_over(self) -> bool:
        """Return whether more bytes are kept than allowed."""
        self._all.settle()
        return self.bytes > self._limit_bytes or self._all.bytes > self._all.limit_bytes

    def hold(self, half_bytes: int) -> None:
        """Set the bytes of the incomplete frame; 0 for no such frame."""
        self.count(half_bytes - self._half)
        self._half = half_bytes

    def count(self, more: int) -> None:
        """Add a number of bytes, which may be negative."""
        self.bytes += more
        self._all.bytes += more


def _size_of(request: Request) -> int:
    """Return the bytes of a request, unknown fields included."""
    frame = request.frame
    texts = getsizeof("".join(frame.fields)) + getsizeof("".join(frame.fields.values()))
    fields = getsizeof(frame.fields) + _FIELD_BYTES * len(frame.fields)
    return len(frame.body) + texts + fields + getsizeof(frame.remark) + REQUEST_BYTES
