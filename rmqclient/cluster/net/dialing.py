"""Dialing: from ``host:port`` to a connected socket, without blocking the I/O thread.

A numeric address is dialed at once. A name is resolved on a thread of its own, because the system's resolver blocks;
its addresses are tried one after another. The time limit is for all of it.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from rmqclient.cluster.net.io_thread import IoThread
from rmqclient.errors import BrokerUnreachable, QueueError
from rmqclient.store.threads.guarded import GuardedThread

Dialed: TypeAlias = socket.socket | QueueError
"""Result of a dial: a connected, non-blocking socket, or an error."""

UNACKNOWLEDGED_MS: Final = 15_000  # then the system ends a connection whose peer does not acknowledge
_Place: TypeAlias = tuple[int, tuple[str, int]]  # address family, and the argument of connect()


def _resolve(host: str, port: int, flags: int = 0) -> list[_Place] | OSError:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except (OSError, UnicodeError) as error:
        return error if isinstance(error, OSError) else OSError(str(error))
    return [(family, place[:2]) for family, _, _, _, place in found]  # type: ignore[misc]


def _resolve_for(io: IoThread, host: str, port: int, dialing: Dialing) -> None:
    found = _resolve(host, port)
    if isinstance(found, OSError):
        io.run_soon(partial(dialing.fail, f"the name {host} is not known: {found}"))
    else:
        io.run_soon(partial(dialing.begin, found))


class Dialing:
    """One dial of ``host:port``. ``done`` gets the result, once, on the I/O thread."""

    def __init__(self, io: IoThread, address: str, timeout_s: float, done: Callable[[Dialed], None]) -> None:
        self._io = io
        self._address = address
        self._done: Callable[[Dialed], None] | None = done
        self._timeout_s = timeout_s
        self._places: list[_Place] = []
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Start. For any thread; the other methods are for the I/O thread."""
        host, _, port = self._address.rpartition(":")
        host = host.strip("[]")
        numeric = _resolve(host, int(port), socket.AI_NUMERICHOST)
        if not isinstance(numeric, OSError):
            self._io.run_soon(partial(self.begin, numeric))
        else:
            resolve = partial(_resolve_for, self._io, host, int(port), self)
            GuardedThread(target=resolve, name=f"rmq-resolve-{host}").start()
        self._io.run_later(self._timeout_s, self.time_out)

    def cancel(self) -> None:
        """Stop without calling ``done``."""
        self._drop()
        self._done = None

    def leave_to_parent(self) -> None:
        """In a forked child: drop the socket, whose copy the I/O thread has closed."""
        if self._socket is not None:
            self._socket.detach()

    def begin(self, places: list[_Place]) -> None:
        """Try these addresses, one after another."""
        self._places = places
        self._next("it has no address")

    def time_out(self) -> None:
        """Fail, unless the dial has ended."""
        self.fail(f"not connected in {self._timeout_s:g} s")

    def fail(self, why: str) -> None:
        """End without a socket."""
        self._drop()
        self._finish(BrokerUnreachable(f"{self._address}: {why}"))

    def _next(self, why: str) -> None:
        """Try the next address, or fail with ``why``, the error of the last one."""
        self._drop()
        if not self._places:
            self.fail(why)
        elif self._done is not None:
            family, place = self._places.pop(0)
            try:
                self._connect(family, place)
            except OSError as error:
                self._next(error.strerror or str(error))

    def _connect(self, family: int, place: tuple[str, int]) -> None:
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
        number = self._socket.connect_ex(place)
        if number not in (0, errno.EINPROGRESS):  # such as ENETUNREACH, which SO_ERROR does not report
            raise OSError(number, os.strerror(number))
        self._io.watch(self._socket.fileno(), select.EPOLLOUT, self._connected)

    def _connected(self, events: int) -> None:
        del events
        assert self._socket is not None
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._next(os.strerror(number))
            return
        made, self._socket = self._socket, None
        self._io.forget(made.fileno())
        self._finish(made)

    def _drop(self) -> None:
        if self._socket is not None:
            self._io.forget(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _finish(self, dialed: Dialed) -> None:
        if self._done is not None:
            done, self._done = self._done, None
            done(dialed)
