"""Connections: the connections of one client, one to each address, made on demand.

After a failure an address is not dialed for 50 ms, twice as long after each further failure, up to 1 s; up to half of
that is added at random, so that many clients do not come back at once. An answer ends the count.
"""

from __future__ import annotations

import random
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rmqclient.cluster.net.connection import Connection
from rmqclient.cluster.net.io_thread import IoThread, acquire, release
from rmqclient.cluster.net.tls import TlsLayer
from rmqclient.errors import BrokerUnreachable, QueueError, StoreClosed, TlsFailed
from rmqclient.remoting.frame import Frame
from rmqclient.store.threads.logs import Log

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
CLOSE_WAIT_S: Final = 5.0

_log = Log(__name__)


@dataclass(slots=True)
class _Failures:
    """Consecutive failures of one address. ``until`` is the monotonic time of the next try, in seconds."""

    count: int
    until: float
    why: QueueError


class Connections:
    """The connections of one client. Safe for threads.

    ``tls`` is None for plain connections. ``on_request`` gets requests of brokers, ``on_loss`` the address of each
    connection that ended or could not be made. Both run on the I/O thread.
    """

    def __init__(
        self,
        tls: ssl.SSLContext | None,
        timeout_s: float,
        on_request: Callable[[Connection, Frame], None],
        on_loss: Callable[[str], None],
    ) -> None:
        self._tls = tls
        self._timeout_s = timeout_s
        self._on_request = on_request
        self._on_loss = on_loss
        self._io: IoThread | None = None
        self._lock = threading.Lock()
        self._by_address: dict[str, Connection] = {}
        self._failures: dict[str, _Failures] = {}
        self._is_closed = False

    @property
    def is_io_thread(self) -> bool:
        """Whether the caller runs on the I/O thread."""
        io = self._io
        return io is not None and io.is_here

    def to(self, address: str) -> Connection:
        """Return the connection to ``host:port``; makes a missing one.

        Raises BrokerUnreachable or TlsFailed during the pause after a failure, and StoreClosed.
        """
        connection = self._by_address.get(address)
        if connection is not None and connection.is_usable:
            return connection
        with self._lock:
            return self._made(address)

    def io(self) -> IoThread:
        """Return the I/O thread, for timers and calls. Raises StoreClosed."""
        with self._lock:
            return self._held()

    def close(self, why: QueueError) -> None:
        """End all connections, and wait until the sockets are closed. Waiting requests get ``why``."""
        with self._lock:
            self._is_closed = True
            io, self._io = self._io, None
            ended = list(self._by_address.values())
        if io is None:
            return
        for connection in ended:
            connection.end(why)
        if not io.is_here:
            closed = threading.Event()
            io.run_soon(closed.set)
            closed.wait(CLOSE_WAIT_S)
        release(io)

    def leave_to_parent(self) -> None:
        """In a forked child: make no more connections, and drop those of the parent."""
        self._is_closed = True
        self._io = None
        for connection in self._by_address.values():
            connection.leave_to_parent()
        self._by_address = {}
        self._lock = threading.Lock()  # a thread of the parent may hold the old one

    def _made(self, address: str) -> Connection:
        io = self._held()
        connection = self._by_address.get(address)
        if connection is not None and connection.is_usable:
            return connection
        failures = self._failures.get(address)
        if failures is not None and (pause_s := failures.until - time.monotonic()) > 0:
            kind = TlsFailed if isinstance(failures.why, TlsFailed) else BrokerUnreachable
            raise kind(f"{failures.why}; it is tried again in {pause_s:.2f} s")
        layer = None if self._tls is None else TlsLayer(self._tls, address.rpartition(":")[0].strip("[]"))
        connection = Connection(io, address, layer, self._timeout_s, self._on_request, self._ended)
        self._by_address[address] = connection
        return connection

    def _held(self) -> IoThread:
        if self._is_closed:
            raise StoreClosed("the client of this cluster was closed")
        if self._io is None:
            self._io = acquire()
        return self._io

    def _ended(self, connection: Connection, why: QueueError) -> None:
        with self._lock:
            if self._is_closed:
                return
            if self._by_address.get(connection.address) is connection:
                del self._by_address[connection.address]
            self._count(connection, why)
        _log.info("%s", why)
        self._on_loss(connection.address)

    def _count(self, connection: Connection, why: QueueError) -> None:
        if connection.peer_version:  # it had answered before, so retry at once
            self._failures.pop(connection.address, None)
            return
        before = self._failures.get(connection.address)
        count = 1 if before is None else before.count + 1
        pause_s = min(FIRST_PAUSE_S * 2 ** min(count - 1, 10), LONGEST_PAUSE_S) * random.uniform(1, 1.5)
        self._failures[connection.address] = _Failures(count, time.monotonic() + pause_s, why)
