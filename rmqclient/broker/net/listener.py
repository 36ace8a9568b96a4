"""Listener: listens on the addresses of a server and admits connections.

A client is counted before anything is allocated for it. To detect TLS, the first byte is read with ``MSG_PEEK``, so a
plain connection needs no layer between its socket and its frames. This costs three system calls for each connection,
and nothing for a frame.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

from rmqclient.broker.address import Address
from rmqclient.broker.limits.counters import Refusal
from rmqclient.broker.net.connection import Connection, address_of
from rmqclient.broker.net.opened import Opened
from rmqclient.broker.net.tls import CLIENT_HELLO, Tls
from rmqclient.errors import CannotListen, TlsUnusable
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

BACKLOG: Final = 1024
"""Connections that the system keeps until they are accepted."""

_AT_ONCE: Final = 64
"""Connections accepted in one turn of the event loop, at most."""

_PAUSE_S: Final = 1.0
"""Seconds without accepting after the process ran out of file descriptors."""

Make = Callable[[Address], Connection]
"""Makes the connection of a client at an address."""


class Listener:
    """Listens on some addresses. Its methods are for the thread of the event loop."""

    def __init__(self, opened: Opened, make: Make, tls: Tls) -> None:
        self._opened = opened
        self._make = make
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._newcomers: set[Newcomer] = set()
        self._greetings: set[asyncio.Task[None]] = set()

    def listen(self, address: Address) -> Address:
        """Listen on an address; return it with its real port. Raises CannotListen."""
        try:
            listening = _listening(address)
        except OSError as error:
            raise CannotListen(f"cannot listen on {address}: {error.strerror or error}") from error
        self._sockets.append(listening)
        self._loop.add_reader(listening, self._accept, listening)
        return address_of(listening.getsockname())

    def close(self) -> None:
        """Stop listening, and turn newcomers away."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for newcomer in list(self._newcomers):
            newcomer.leave()
        for greeting in list(self._greetings):
            greeting.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, name = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.error("no connection is accepted for %g s: %s", _PAUSE_S, error)
                self._loop.remove_reader(listening)
                self._loop.call_later(_PAUSE_S, self._accept_again, listening)
                return
            remote = address_of(name)
            if not self._opened.enter(remote):
                accepted.close()
                continue
            accepted.setblocking(False)
            if self._tls.is_looked_for:
                self._newcomers.add(Newcomer(accepted, remote, self, self._opened))
            else:
                self.greet(accepted, remote, is_tls=False)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def greet(self, accepted: socket.socket, remote: Address, *, is_tls: bool) -> None:
        """Make a connection from a socket, unless its kind, plain or TLS, is refused."""
        if self._tls.is_required and not is_tls:
            self._opened.counters.refuse(Refusal.TLS, f"client {remote} refused: it does not speak TLS")
            self.turn_away(accepted, remote)
            return
        greeting = self._loop.create_task(self._greet(accepted, remote, is_tls=is_tls))
        self._greetings.add(greeting)
        greeting.add_done_callback(self._greetings.discard)

    def turn_away(self, accepted: socket.socket, remote: Address) -> None:
        """Close a socket without a connection."""
        accepted.close()
        self._opened.leave(remote)

    async def _greet(self, accepted: socket.socket, remote: Address, *, is_tls: bool) -> None:
        connection = self._make(remote)
        try:
            if is_tls:
                context = await self._loop.run_in_executor(None, self._tls.context)
                await self._loop.connect_accepted_socket(
                    lambda: connection,
                    accepted,
                    ssl=context,
                    ssl_handshake_timeout=self._opened.limits.handshake_s,
                )
            else:
                await self._loop.connect_accepted_socket(lambda: connection, accepted)
        except asyncio.CancelledError:
            self._give_up(connection, accepted, remote)
        except (OSError, ssl.SSLError, TlsUnusable) as error:
            self._opened.counters.refuse(Refusal.TLS, f"client {remote} refused: TLS failed: {error}")
            self._give_up(connection, accepted, remote)
        except Exception:  # noqa: BLE001 - a counted client must be uncounted
            _log.exception("client %s refused", remote)
            self._give_up(connection, accepted, remote)

    def _give_up(self, connection: Connection, accepted: socket.socket, remote: Address) -> None:
        if connection.has_begun:
            connection.abort()
        else:
            self.turn_away(accepted, remote)

    def forget(self, newcomer: Newcomer) -> None:
        """Forget a newcomer that has sent its first byte, or has gone."""
        self._newcomers.discard(newcomer)


class Newcomer:
    """A client that has not sent its first byte yet."""

    __slots__ = ("_accepted", "_listener", "_loop", "_opened", "_remote", "_since")

    def __init__(self, accepted: socket.socket, remote: Address, listener: Listener, opened: Opened) -> None:
        self._accepted = accepted
        self._remote = remote
        self._listener = listener
        self._opened = opened
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._loop.add_reader(accepted, self._look_at_first_byte)
        opened.watched.add(self)

    def look(self, now: float) -> None:
        """Turn the client away when its time is over."""
        if now - self._since >= self._opened.limits.idle_s:
            self._opened.counters.refuse(Refusal.IDLE, f"client {self._remote} cut off: it never sent anything")
            self.leave()

    def leave(self) -> None:
        """Turn the client away."""
        self._forget()
        self._listener.turn_away(self._accepted, self._remote)

    def _look_at_first_byte(self) -> None:
        try:
            first = self._accepted.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:
            self.leave()
            return
        self._forget()
        self._listener.greet(self._accepted, self._remote, is_tls=first[0] == CLIENT_HELLO)

    def _forget(self) -> None:
        self._loop.remove_reader(self._accepted)
        self._opened.watched.discard(self)
        self._listener.forget(self)


def _listening(address: Address) -> socket.socket:
    """Return a listening socket. Of a name with several addresses the first one is used, IPv4 before IPv6."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, name = min(found, key=lambda one: one[0] != socket.AF_INET)
    listening = socket.create_server(name[:2], family=family, backlog=BACKLOG)
    # Every accepted socket inherits TCP_NODELAY. Without it, a small answer waits up to 40 ms for the client's
    # acknowledgement of the last one. asyncio sets it only on sockets made with IPPROTO_TCP, and these were not.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listening.setblocking(False)
    return listening
