"""Connection: requests and answers between this client and one broker or name server.

Any thread may send: it writes to the socket itself, or leaves its bytes to a thread that is writing. Only the I/O
thread reads. It matches answers, in any order, with requests by ``opaque``, and drops answers to requests that timed
out.

================  =====================================================================================
failure           result
================  =====================================================================================
no answer         RequestTimedOut, for this request only; if nothing was received since it was sent, a small
                  request probes the peer, and the connection ends if that is not answered either
peer gone         ConnectionLost for every waiting request
invalid frames    the same; the connection ends
slow peer         ConnectionFull when too many bytes are unsent
================  =====================================================================================
"""

from __future__ import annotations

import itertools
import math
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from rmqclient.cluster.net.dialing import Dialed, Dialing
from rmqclient.cluster.net.io_thread import IoThread
from rmqclient.cluster.net.tls import TlsLayer
from rmqclient.errors import (
    ConnectionFull,
    ConnectionLost,
    QueueError,
    RequestTimedOut,
    TlsFailed,
)
from rmqclient.remoting.errors import FrameError
from rmqclient.remoting.frame import ONEWAY, Frame, FrameReader, encode
from rmqclient.remoting.table import RequestCode, request
from rmqclient.store.threads.logs import Log

MOST_UNSENT_BYTES: Final = 64 * 1024 * 1024
"""Unsent bytes of one connection, at most; if there are none, a frame of any length is accepted."""

Done: TypeAlias = Callable[[Frame | QueueError], None]
"""Gets the answer or the error. Runs on the I/O thread and must not block."""

_opaques = itertools.count(1)  # unique in the process, which helps in reading traces
_POSITIVE: Final = 0x7FFFFFFF
_log = Log(__name__)


class Connection:
    """A connection to ``address``; dialing starts at once.

    ``layer`` is TLS, or None. ``on_request`` gets requests of the peer. ``on_end`` is called once, when the connection
    has ended, with the reason and whether it was ever made. Both run on the I/O thread.
    """

    def __init__(
        self,
        io: IoThread,
        address: str,
        layer: TlsLayer | None,
        timeout_s: float,
        on_request: Callable[[Connection, Frame], None],
        on_end: Callable[[Connection, QueueError], None],
    ) -> None:
        self.address = address
        self.peer_version = 0
        self.was_open = False
        self._io = io
        self._layer = layer
        self._timeout_s = timeout_s
        self._on_request = on_request
        self._on_end = on_end
        self._reader = FrameReader()
        self._waiting: dict[int, _Waiting] = {}
        self._lock = threading.Lock()  # guards the next four; never held during a system call
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._writing = True  # by the I/O thread, which writes first when the connection is made
        self._ended: QueueError | None = None
        self._wire = memoryview(b"")  # bytes that the socket has not taken; owned by the writing thread
        self._socket: socket.socket | None = None
        self._heard_at = time.monotonic()  # before the first request
        self._is_probing = False
        io.add_check(self._check)
        self._dialing = Dialing(io, address, timeout_s, self._made)
        self._dialing.start()

    @property
    def is_usable(self) -> bool:
        """Whether it accepts requests: it is made, or being dialed."""
        return self._ended is None

    def ask(self, asked: Frame, timeout_s: float) -> Frame:
        """Send a request and return its answer, with any code. Raises the errors of the module.

        Raises RuntimeError on the I/O thread, which would wait for itself.
        """
        if self._io.is_here:
            raise RuntimeError(f"{self.address}: the I/O thread must not wait for an answer; submit the request")
        answered = _Answered()
        opaque = self.submit(asked, answered, timeout_s, checked=False)
        if not answered.wait(timeout_s):
            waited = self._waiting.pop(opaque, None)
            if waited is not None:
                self._time_out(waited)
            answered.wait()  # another thread has popped the request and is delivering its answer
        return answered.result()

    def submit(self, asked: Frame, done: Done, timeout_s: float, *, checked: bool = True) -> int:
        """Send a request and return its opaque; ``done`` gets its answer. If this raises, ``done`` is not called.

        ``checked=False`` leaves the deadline to the caller.
        """
        opaque = asked.opaque = next(_opaques) & _POSITIVE
        data = encode(asked)
        now = time.monotonic()
        self._waiting[opaque] = _Waiting(asked.code, done, now, now + timeout_s)
        if checked:
            self._io.check_at(now + timeout_s)
        try:
            self._send(data)
        except QueueError:
            if self._waiting.pop(opaque, None) is not None:
                raise
        return opaque

    def tell(self, frame: Frame) -> None:
        """Send a oneway request, or an answer."""
        if not frame.is_response:
            frame.opaque = next(_opaques) & _POSITIVE
            frame.flag |= ONEWAY
        self._send(encode(frame))

    def end(self, why: QueueError) -> None:
        """End the connection soon; waiting requests get ``why``. For any thread."""
        self._io.run_soon(partial(self._end, why))

    def leave_to_parent(self) -> None:
        """In a forked child: drop the socket, whose copy the I/O thread has closed."""
        self._dialing.leave_to_parent()
        if self._socket is not None:
            self._socket.detach()

    # --- writing: by one thread at a time ---------------------------------------------------------

    def _send(self, data: bytes) -> None:
        with self._lock:
            if self._ended is not None:
                raise _again(self._ended)
            if self._writing:
                self._queue(data)
                return
            self._writing = True
        self._write(data)

    def _queue(self, data: bytes) -> None:
        if self._unsent and self._unsent_bytes + len(data) > MOST_UNSENT_BYTES:
            raise ConnectionFull(
                f"{self.address}: {self._unsent_bytes:,} bytes wait for it, and {MOST_UNSENT_BYTES:,} may: it reads "
                "too slowly; send less at once, or later"
            )
        self._unsent.append(data)
        self._unsent_bytes += len(data)

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
            self._wire = memoryview(self._layer.wrap(data) if self._layer else data)
            return self._flush()
        except (OSError, ValueError) as error:  # ValueError: the socket was closed meanwhile
            self.end(self._loss(error))
            return False

    def _flush(self) -> bool:
        assert self._socket is not None
        if self._wire:
            with suppress(BlockingIOError):
                self._wire = self._wire[self._socket.send(self._wire) :]
        if self._wire:
            self._io.run_soon(self._watch)
            return False
        return True

    def _go_on_writing(self) -> None:
        if self._flush():
            self._watch()
            if self.was_open:
                self._write(b"")

    # --- events, on the I/O thread ----------------------------------------------------------------

    def _made(self, made: Dialed) -> None:
        """Take the socket of a finished dial, or its error."""
        if isinstance(made, QueueError):
            self._end(made)
        else:
            self._socket = made
            try:
                self._begin()
            except OSError as error:
                self._end(self._loss(error))

    def _begin(self) -> None:
        if self._layer is None:
            self._open()
        else:
            self._io.run_later(self._timeout_s, self._give_up_handshake)
            self._shake_hands(b"")

    def _shake_hands(self, received: bytes) -> None:
        assert self._layer is not None
        try:
            agreed, reply = self._layer.handshake(received)
        except ssl.SSLError as error:
            self._end(TlsFailed(f"{self.address}: the TLS handshake failed: {error}"))
            return
        self._wire = memoryview(reply)
        self._flush()
        if agreed:
            self._open()
        elif not self._wire:
            self._watch()

    def _give_up_handshake(self) -> None:
        if not self.was_open:
            self._end(
                TlsFailed(f"{self.address}: the TLS handshake did not end in {self._timeout_s:g} s: no TLS there?")
            )

    def _open(self) -> None:
        self.was_open = True
        self._go_on_writing()

    def _watch(self) -> None:
        if self._socket is not None and self._ended is None:
            events = select.EPOLLIN | select.EPOLLOUT if self._wire else select.EPOLLIN
            self._io.watch(self._socket.fileno(), events, self._ready)

    def _ready(self, events: int) -> None:
        try:
            if events & ~select.EPOLLOUT:
                self._read()
            if events & select.EPOLLOUT and self._ended is None:
                self._go_on_writing()
        except (OSError, FrameError) as error:
            self._end(self._loss(error))

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
        self._heard_at = time.monotonic()
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
            self._send(b"")
        return data

    def _take(self, frame: Frame) -> None:
        if not self.peer_version:
            self.peer_version = frame.version
        if not frame.is_response:
            self._on_request(self, frame)
        elif waited := self._waiting.pop(frame.opaque, None):
            self._answer(waited, frame)

    def _end(self, why: QueueError) -> None:
        if self._ended is not None:
            return
        self._on_end(self, why)  # first, so that a waiter that retries gets a new connection
        with self._lock:
            self._ended = why
            self._unsent.clear()
        self._io.remove_check(self._check)
        self._dialing.cancel()
        if self._socket is not None:
            self._io.forget(self._socket.fileno())
            self._socket.close()
        for opaque in list(self._waiting):  # a waiting thread may pop its own request meanwhile
            if (waited := self._waiting.pop(opaque, None)) is not None:
                self._answer(waited, _again(why))

    def _loss(self, error: Exception) -> QueueError:
        if not self.was_open:
            return TlsFailed(f"{self.address}: {error}, during the TLS handshake: it may have no TLS")
        if self.peer_version:
            return ConnectionLost(f"{self.address}: {error}")
        wants = "TLS (tls=true)" if self._layer is None else "a certificate of this client (cert_file)"
        return ConnectionLost(f"{self.address}: {error}; it may want {wants}, or be no broker or name server")

    # --- deadlines, on the I/O thread or a waiting one --------------------------------------------

    def _check(self, now: float) -> float:
        """Time out requests that are due; return when the next one is."""
        due = math.inf
        for opaque, waited in list(self._waiting.items()):
            if waited.deadline > now:
                due = min(due, waited.deadline)
            elif self._waiting.pop(opaque, None) is not None:
                self._time_out(waited)
        return due

    def _time_out(self, waited: _Waiting) -> None:
        waiting_s = waited.deadline - waited.sent_at
        self._answer(waited, RequestTimedOut(f"{self.address}: no answer to request {waited.name} in {waiting_s:g} s"))
        if self._heard_at < waited.sent_at:
            self._io.run_soon(self._probe)

    def _probe(self) -> None:
        """Send a request that every broker and name server answers, and end the connection if it is not answered."""
        if self._is_probing or self._ended is not None or not self.was_open:
            return
        self._is_probing = True
        probe = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
        with suppress(QueueError):
            self.submit(probe, partial(self._probed, time.monotonic()), self._timeout_s)

    def _probed(self, asked_at: float, answer: Frame | QueueError) -> None:
        self._is_probing = False
        if isinstance(answer, RequestTimedOut) and self._heard_at < asked_at:
            self._end(ConnectionLost(f"{self.address}: silent for {time.monotonic() - self._heard_at:.1f} s"))

    def _answer(self, waited: _Waiting, answer: Frame | QueueError) -> None:
        try:
            waited.done(answer)
        except Exception:  # noqa: BLE001 - it is logged
            _log.exception("%s: the answer to request %s was not taken", self.address, waited.name)


@dataclass(slots=True)
class _Waiting:
    """A request that waits for its answer. Times are in monotonic seconds."""

    code: int
    done: Done
    sent_at: float
    deadline: float

    @property
    def name(self) -> str:
        """The name of the request's code, or its number."""
        return RequestCode(self.code).name if self.code in RequestCode._value2member_map_ else str(self.code)


class _Answered:
    """Lets one thread wait for one answer."""

    __slots__ = ("_answer", "_lock")

    def __init__(self) -> None:
        self._answer: Frame | QueueError | None = None
        self._lock = threading.Lock()
        self._lock.acquire()

    def __call__(self, answer: Frame | QueueError) -> None:
        """Take the answer. For the I/O thread."""
        self._answer = answer
        self._lock.release()

    def wait(self, timeout_s: float = -1) -> bool:
        """Wait for the answer, by default without a limit; False at the time-out."""
        return self._lock.acquire(timeout=timeout_s)

    def result(self) -> Frame:
        """Return the answer, or raise the error."""
        assert self._answer is not None
        if isinstance(self._answer, QueueError):
            raise self._answer
        return self._answer


def _again(error: QueueError) -> QueueError:
    """Return a copy, so that each waiting thread raises its own exception with its own traceback."""
    return type(error)(*error.args)
