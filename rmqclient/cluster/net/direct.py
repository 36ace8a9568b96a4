"""Direct connection: to one broker, for one thread, which sends pulls and waits for answers itself.

It does not use the I/O thread, so no thread has to be woken for an answer. That saves processor time for a task that
only reads millions of messages. Its errors are those of :mod:`rmqclient.cluster.net.connection`; after an error it
cannot be used again.
"""

from __future__ import annotations

import itertools
import select
import socket
import ssl
from struct import Struct
from typing import Final, TypeAlias

from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.net.dialing import UNACKNOWLEDGED_MS
from rmqclient.cluster.net.tls import context_of
from rmqclient.errors import BrokerUnreachable, ConnectionLost, RequestTimedOut, TlsFailed
from rmqclient.remoting.errors import FrameError
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.frame_buffer import FrameBuffer
from rmqclient.store.wire import found_in

TURNS: Final = 8
"""Number of calls of ``receive`` after which received data is overwritten."""

Found: TypeAlias = tuple[int, int, memoryview]
"""An answer with messages: the opaque of its request, the next offset, and the records."""

_TIMEVAL: Final = Struct("@ll")
_POSITIVE: Final = 0x7FFFFFFF


class DirectConnection:
    """A connection to ``host:port`` of the cluster of ``url``. Raises BrokerUnreachable, TlsFailed, InvalidURL.

    The URL's time-out limits making it and each wait, but not a look-up of the name.
    """

    def __init__(self, url: ClusterURL, address: str) -> None:
        self.address = address
        self._timeout_s = url.timeout_s
        self._opaques = itertools.count(1)
        self._buffer = FrameBuffer(TURNS, found_in)
        self._socket = self._dialed()
        try:
            if url.tls is not None:
                self._socket = self._with_tls(context_of(url.tls))
            self._limit_waits()
        except BaseException:
            self._socket.close()
            raise

    def opaque(self) -> int:
        """Return the number of the next request."""
        return next(self._opaques) & _POSITIVE

    def send(self, requests: bytes) -> None:
        """Send encoded requests. Raises ConnectionLost."""
        try:
            self._socket.sendall(requests)
        except OSError as error:
            raise ConnectionLost(f"{self.address}: {error}") from error

    def comes_in(self, timeout_s: float) -> bool:
        """Return whether data can be received within this time."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def receive(self) -> tuple[list[Found], list[tuple[Frame, memoryview]]]:
        """Wait for bytes; return the answers that they complete: those with messages, and others with their bodies.

        Raises RequestTimedOut if nothing comes within the URL's time-out, and ConnectionLost.
        """
        try:
            count = self._socket.recv_into(self._buffer.space())
            if count == 0:
                raise ConnectionResetError("the peer closed the connection")
            found, others = self._buffer.frames(count)
        except (BlockingIOError, TimeoutError):
            raise RequestTimedOut(f"{self.address}: nothing came in {self._timeout_s:g} s") from None
        except (OSError, FrameError) as error:
            raise ConnectionLost(f"{self.address}: {error}") from error
        return found, [(frame, body) for frame, body in others if frame.is_response]

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _dialed(self) -> socket.socket:
        host, _, port = self.address.rpartition(":")
        try:
            made = socket.create_connection((host.strip("[]"), int(port)), self._timeout_s)
        except (OSError, UnicodeError) as error:
            raise BrokerUnreachable(f"{self.address}: {error}") from error
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
        return made

    def _with_tls(self, context: ssl.SSLContext) -> socket.socket:
        host = self.address.rpartition(":")[0].strip("[]")
        try:
            return context.wrap_socket(self._socket, server_hostname=host)
        except (OSError, ValueError) as error:
            raise TlsFailed(f"{self.address}: the TLS handshake failed: {error}") from error

    def _limit_waits(self) -> None:
        """Set the time-out in the system: Python would call ``poll`` before each call of a socket with a time-out."""
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket.settimeout(self._timeout_s)
            return
        seconds, rest = divmod(max(self._timeout_s, 0.001), 1)  # 0 would mean no limit
        limit = _TIMEVAL.pack(int(seconds), int(rest * 1e6))
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
