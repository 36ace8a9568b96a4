"""Flight: the bytes that requests without an answer and half-sent frames take, of one client and of all.

A request that was answered at once never counts. One that waits is counted as long as somebody holds the object, so
the count is what it says, whichever room keeps the request and whichever thread lets go of it.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Final

from rmqclient.broker.request import Request

REQUEST_BYTES: Final = 2048
"""What a waiting request takes beside its body: its objects and the fields of its header. Measured, rounded up."""


class Flight:
    """Bytes of all clients. Its methods are for the thread of the event loop."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0


class OwnFlight:
    """Bytes of one client, which are also counted with those of all."""

    __slots__ = ("_all", "_freed", "_half", "_limit_bytes", "_waiting", "bytes")

    def __init__(self, of_all: Flight, limit_bytes: int) -> None:
        self._all = of_all
        self._limit_bytes = limit_bytes
        self._freed: deque[weakref.ref[Request]] | None = None
        self._waiting: dict[weakref.ref[Request], int] = {}
        self._half = 0
        self.bytes = 0

    @property
    def requests(self) -> int:
        """How many requests wait for their answers."""
        self._free()
        return len(self._waiting)

    def has_room_for(self, body_bytes: int) -> bool:
        """Return whether another request with such a body may wait."""
        if self._freed:
            self._free()
        more = body_bytes + REQUEST_BYTES
        return self.bytes + more <= self._limit_bytes and self._all.bytes + more <= self._all.limit_bytes

    def is_over(self) -> bool:
        """Return whether more is kept than allowed."""
        self._free()
        return self.bytes > self._limit_bytes or self._all.bytes > self._all.limit_bytes

    def wait_for(self, request: Request) -> None:
        """Count a request until nobody has it any more."""
        if self._freed is None:
            self._freed = deque()
        size = len(request.body) + REQUEST_BYTES
        self._waiting[weakref.ref(request, self._freed.append)] = size  # any thread may let go, so it only notes it
        self._count(size)

    def hold(self, half_bytes: int) -> None:
        """Count the bytes of a frame that has not come to its end; 0 when there is none."""
        self._count(half_bytes - self._half)
        self._half = half_bytes

    def close(self) -> None:
        """Count nothing of this client any more."""
        self._count(-self.bytes)
        self._waiting.clear()
        self._half = 0

    def _free(self) -> None:
        while self._freed:
            self._count(-self._waiting.pop(self._freed.popleft(), 0))

    def _count(self, more: int) -> None:
        self.bytes += more
        self._all.bytes += more
