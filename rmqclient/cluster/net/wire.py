"""Wire: the bytes of one connection, through its socket and, if there is one, its TLS layer.

Any thread may send: it writes to the socket itself, or leaves its bytes to a thread that is writing. Only the I/O
thread reads.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from rmqclient.cluster.net.io_thread import IoThread
from rmqclient.cluster.net.tls import TlsLayer
from rmqclient.errors import ConnectionFull, QueueError, TlsFailed
from rmqclient.remoting.errors import FrameError
from rmqclient.remoting.frame import Frame, FrameReader

MOST_UNSENT_BYTES: Final = 64 * 1024 * 1024
"""Unsent bytes of one connection, at most; if there are none, a frame of any length is accepted."""


class Wire:
    """Sends bytes to ``address``, and hands on the frames that it reads.

    It takes bytes before it has a socket, and writes them when TLS is agreed on. ``layer`` is TLS, or None. ``take``
    gets each frame, and ``failed`` the error after which the wire is of no use. Both run on the I/O thread.
    """

    def __init__(
        self,
        io: IoThread,
        address: str,
        layer: TlsLayer | None,
        take: Callable[[Frame], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.was_open = False
        """Whether it ever had a socket, and the handshake of TLS ended."""
        self.heard_at = time.monotonic()
        """Monotonic time, in seconds, at which the last bytes of the peer were read; at first, that of now."""
        self.ended: QueueError | None = None
        """Why it was closed."""
        self._io = io
        self._address = address
        self._layer = layer
        self._take = take
        self._failed = failed
        self._reader = FrameReader()
        self._lock = threading.Lock()  # guards `ended` and the next three; never held during a system call
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._writing = True  # by the I/O thread, which writes first when the socket is there
        self._left = memoryview(b"")  # bytes that the socket has not taken; owned by the writing thread
        self._socket: socket.socket | None = None

    def begin(self, made: socket.socket, timeout_s: float) -> None:
        """Use a connected socket. The handshake of TLS may take ``timeout_s``. Raises OSError."""
        self._socket = made
        if self._layer is not None:
            self._io.run_later(timeout_s, partial(self._give_up_handshake, timeout_s))
        self._shake_hands(b"")

    def send(self, data: bytes) -> None:
        """Write bytes, or leave them to the thread that is writing. Raises ConnectionFull, and why it was closed."""
        with self._lock:
            if self.ended is not None:
                raise again(self.ended)
            if self._writing:
                if self._unsent and self._unsent_bytes + len(data) > MOST_UNSENT_BYTES:
                    raise ConnectionFull(
                        f"{self._address}: {self._unsent_bytes:,} bytes wait for it, and {MOST_UNSENT_BYTES:,} may: it "
                        "reads too slowly; send less at once, or later"
                    )
                self._unsent.append(data)
                self._unsent_bytes += len(data)
                return
            self._writing = True
        self._write(data)

    def close(self, why: QueueError) -> None:
        """Close the socket, and drop what is unsent."""
        with self._lock:
            self.ended = why
            self._unsent.clear()
        if self._socket is not None:
            self._io.forget(self._socket.fileno())
            self._socket.close()

    def leave_to_parent(self) -> None:
        """In a forked child: drop the socket, whose copy the I/O thread has closed."""
        if self._socket is not None:
            self._socket.detach()

    # --- writing: by one thread at a time ---------------------------------------------------------

    def _write(self, data: bytes) -> None:
        """Write ``data`` and what other threads add meanwhile. For the writing thread."""
        while self._push(data):
            with self._lock:
                if not self._unsent:
                    self._writing = False
                    return
                data = b"".join(self._unsent)
                self._unsent.clear()
                self._unsent_bytes = 0

    def _push(self, data: bytes) -> bool:
        """Write bytes to the socket; False if it did not take all of them, and the I/O thread continues."""
        assert self._socket is not None
        try:
            self._left = memoryview(self._layer.wrap(data) if self._layer else data)
            return self._flush()
        except (OSError, ValueError) as error:  # ValueError: the socket was closed meanwhile
            self._io.run_soon(partial(self._failed, error))
            return False

    def _flush(self) -> bool:
        assert self._socket is not None
        if self._left:
            with suppress(BlockingIOError):
                self._left = self._left[self._socket.send(self._left) :]
        if self._left:
            self._io.run_soon(self._watch)
            return False
        return True

    def _go_on_writing(self) -> None:
        if self._flush():
            self._watch()
            if self.was_open:
                self._write(b"")

    # --- events, on the I/O thread ----------------------------------------------------------------

    def _shake_hands(self, received: bytes) -> None:
        """Continue the handshake of TLS, and begin to write after its end. Without TLS it has ended."""
        try:
            agreed, reply = self._layer.handshake(received) if self._layer is not None else (True, b"")
        except ssl.SSLError as error:
            self._failed(TlsFailed(f"{self._address}: the TLS handshake failed: {error}"))
            return
        self._left = memoryview(reply)
        self._flush()
        if agreed:
            self.was_open = True
            self._go_on_writing()
        elif not self._left:
            self._watch()

    def _give_up_handshake(self, timeout_s: float) -> None:
        if not self.was_open:
            self._failed(TlsFailed(f"{self._address}: the TLS handshake did not end in {timeout_s:g} s: no TLS there?"))

    def _watch(self) -> None:
        if self._socket is not None and self.ended is None:
            events = select.EPOLLIN | select.EPOLLOUT if self._left else select.EPOLLIN
            self._io.watch(self._socket.fileno(), events, self._ready)

    def _ready(self, events: int) -> None:
        try:
            if events & ~select.EPOLLOUT:
                self._read()
            if events & select.EPOLLOUT and self.ended is None:
                self._go_on_writing()
        except (OSError, FrameError) as error:
            self._failed(error)

    def _read(self) -> None:
        assert self._socket is not None
        try:
            count = self._socket.recv_into(self._io.buffer)
        except BlockingIOError:
            return
        if count == 0:
            raise ConnectionResetError("the peer closed the connection")
        data: bytes | memoryview = self._io.buffer[:count]
        if self._layer is not None:
            received = bytes(data)
            if not self.was_open:
                self._shake_hands(received)
                received = b""
            data = self._unwrapped(received)
        self.heard_at = time.monotonic()
        for frame in self._reader.feed(data):
            self._take(frame)
        if self._reader.damage is not None:
            raise self._reader.damage

    def _unwrapped(self, data: bytes) -> bytes:
        """Decrypt bytes; the first of them may have come with the end of the handshake."""
        assert self._layer is not None
        if not self.was_open:
            return b""
        data = self._layer.unwrap(data)
        if self._layer.has_more_to_send:
            self.send(b"")
        return data


def again(error: QueueError) -> QueueError:
    """Return a copy, so that each waiting thread raises its own exception with its own traceback."""
    return type(error)(*error.args)
