"""Opened: the connections of a server, what they take together, and the look at all of them by the clock."""

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
"""How many looks come within the shortest time that a limit has."""

_TURNS: Final = 20
_TURN_S: Final = 0.005

_READ_BYTES: Final = 256 * 1024
"""What one read takes at most."""


class Watched(Protocol):
    """A connection, or what becomes one."""

    def look(self, now: float) -> None:
        """Be closed if a limit of time has passed; ``now`` is the event loop's, in seconds."""


@runtime_checkable
class Answered(Watched, Protocol):
    """A connection that requests come by."""

    @property
    def is_idle(self) -> bool:
        """Whether every request has its answer, and every answer has left."""

    def stop_reading(self) -> None:
        """Take no more requests; those that were taken are answered."""

    def end(self) -> None:
        """End the connection; TLS may say good-bye."""

    def abort(self) -> None:
        """End the connection at once."""


class Opened:
    """All connections of a server. Its methods are for the thread of the event loop."""

    def __init__(self, limits: Limits, counters: Counters) -> None:
        self.limits = limits
        self.counters = counters
        self.flight = Flight(limits.flight_bytes)
        self.unsent_bytes = 0
        """What waits for clients that do not read fast enough."""
        self.buffer = memoryview(bytearray(_READ_BYTES))
        """Where every connection reads to."""
        self.watched: set[Watched] = set()
        self.count = 0
        """How many clients are connected."""
        self._hosts: Counter[str] = Counter()
        self._opaque = 0
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, remote: Address) -> bool:
        """Return whether this client may come in; then :meth:`leave` has to follow once."""
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
        """Forget a client that has come in."""
        self.count -= 1
        self._hosts[remote.host] -= 1
        if self._hosts[remote.host] <= 0:
            del self._hosts[remote.host]

    def connections(self) -> list[Answered]:
        """Return those that have shown what they speak."""
        return [watched for watched in self.watched if isinstance(watched, Answered)]

    def next_opaque(self) -> int:
        """Return a number for a request of the broker, which no request under way has."""
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque

    def start(self) -> None:
        """Look at all connections again and again, on the running loop."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for watched in list(self.watched):
            _look_at(watched, now)
        limits = self.limits
        shortest_s = min(limits.idle_s, limits.frame_s, limits.handshake_s)
        self._timer = loop.call_later(shortest_s / _LOOKS, self.start)

    async def end(self) -> None:
        """Look no more, and end every connection, within a moment."""
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
    except Exception:  # noqa: BLE001 - the limits of time hold for all others, too
        _log.exception("a connection could not be looked at")
