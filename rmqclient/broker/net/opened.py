"""Opened: the open connections of a server, their common limits, and the periodic check of their time limits."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final, Protocol, runtime_checkable

from rmqclient.broker.address import Address
from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.limits.limits import Limits
from rmqclient.broker.net.flight import Flight
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_LOOKS: Final = 8
"""Checks within the shortest time limit."""

_TURNS: Final = 20
_TURN_S: Final = 0.005

_READ_BYTES: Final = 256 * 1024
"""Bytes of one read, at most."""


class Watched(Protocol):
    """A connection, or a newcomer that may become one."""

    def look(self, now: float) -> None:
        """Close it if a time limit has passed; ``now`` is the event loop's time, in seconds."""


@runtime_checkable
class Answered(Watched, Protocol):
    """A connection that receives requests."""

    @property
    def is_idle(self) -> bool:
        """Whether every request is answered, and every answer is sent."""

    def stop_reading(self) -> None:
        """Read no more requests; those already read are answered."""

    def end(self) -> None:
        """End the connection; TLS may send its closing alert."""

    def abort(self) -> None:
        """End the connection at once."""


class Opened:
    """All connections of a server. Its methods are for the thread of the event loop."""

    def __init__(self, limits: Limits, counters: Counters) -> None:
        self.limits = limits
        self.counters = counters
        self.flight = Flight(limits.flight_bytes)
        self.unsent_bytes = 0
        """Bytes that wait for clients that do not read fast enough."""
        self.buffer = memoryview(bytearray(_READ_BYTES))
        """Read buffer of all connections."""
        self.watched: set[Watched] = set()
        self.count = 0
        """Number of connected clients."""
        self._hosts: Counter[str] = Counter()
        self._opaque = 0
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, remote: Address) -> bool:
        """Count a client, unless a limit is reached; return whether it may connect. If so, call :meth:`leave` once."""
        if self.count >= self.limits.connections:
            self.counters.refuse(
                Refusal.CONNECTION,
                f"client {remote} refused: {self.limits.connections:,} connections are open, which is the limit",
            )
            return False
        if self._hosts[remote.host] >= self.limits.connections_per_address:
            self.counters.refuse(
                Refusal.ADDRESS,
                f"client {remote} refused: {self._hosts[remote.host]:,} of its address are open, which is the limit",
            )
            return False
        self._hosts[remote.host] += 1
        self.count += 1
        return True

    def leave(self, remote: Address) -> None:
        """Uncount a client that entered."""
        self.count -= 1
        self._hosts[remote.host] -= 1
        if self._hosts[remote.host] <= 0:
            del self._hosts[remote.host]

    def connections(self) -> list[Answered]:
        """Return the connections, without newcomers."""
        return [watched for watched in self.watched if isinstance(watched, Answered)]

    def next_opaque(self) -> int:
        """Return a number for a request of the broker that no other request under way has."""
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque

    def start(self) -> None:
        """Check all connections periodically, on the running loop."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for watched in list(self.watched):
            _look_at(watched, now)
        limits = self.limits
        shortest_s = min(limits.idle_s, limits.frame_s, limits.handshake_s)
        self._timer = loop.call_later(shortest_s / _LOOKS, self.start)

    async def end(self) -> None:
        """Stop checking, and end every connection within a moment."""
        if self._timer is not None:
            self._timer.cancel()
        for connection in self.connections():
            connection.end()
        for _ in range(_TURNS):
            if not self.count:
                return
            await asyncio.sleep(_TURN_S)
        for connection in self.connections():
            connection.abort()
        await asyncio.sleep(_TURN_S)


def _look_at(watched: Watched, now: float) -> None:
    try:
        watched.look(now)
    except Exception:  # noqa: BLE001 - the other connections must be checked, too
        _log.exception("checking a connection failed")
