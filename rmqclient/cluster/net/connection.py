"""Connection: requests and answers between this client and one broker or name server.

Any thread may send (:mod:`rmqclient.cluster.net.wire`). The I/O thread matches answers, in any order, with requests by
``opaque``, and drops answers to requests that timed out.

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
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from rmqclient.cluster.net.dialing import Dialed, Dialing
from rmqclient.cluster.net.io_thread import IoThread
from rmqclient.cluster.net.tls import TlsLayer
from rmqclient.cluster.net.wire import Wire, again
from rmqclient.errors import ConnectionLost, QueueError, RequestTimedOut, TlsFailed
from rmqclient.remoting.frame import ONEWAY, Frame, encode
from rmqclient.remoting.table import RequestCode, request
from rmqclient.store.threads.logs import Log

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
        self._io = io
        self._has_tls = layer is not None
        self._timeout_s = timeout_s
        self._on_request = on_request
        self._on_end = on_end
        self._waiting: dict[int, _Waiting] = {}
        self._is_probing = False
        self._wire = Wire(io, address, layer, self._take, self._lose)
        io.add_check(self._check)
        self._dialing = Dialing(io, address, timeout_s, self._made)
        self._dialing.start()

    @property
    def is_usable(self) -> bool:
        """Whether it accepts requests: it is made, or being dialed."""
        return self._wire.ended is None

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
            self._wire.send(data)
        except QueueError:
            if self._waiting.pop(opaque, None) is not None:
                raise
        return opaque

    def tell(self, frame: Frame) -> None:
        """Send a oneway request, or an answer."""
        if not frame.is_response:
            frame.opaque = next(_opaques) & _POSITIVE
            frame.flag |= ONEWAY
        self._wire.send(encode(frame))

    def end(self, why: QueueError) -> None:
        """End the connection soon; waiting requests get ``why``. For any thread."""
        self._io.run_soon(partial(self._end, why))

    def leave_to_parent(self) -> None:
        """In a forked child: drop the socket, whose copy the I/O thread has closed."""
        self._dialing.leave_to_parent()
        self._wire.leave_to_parent()

    # --- events, on the I/O thread ----------------------------------------------------------------

    def _made(self, made: Dialed) -> None:
        """Take the socket of a finished dial, or its error."""
        if isinstance(made, QueueError):
            self._end(made)
            return
        try:
            self._wire.begin(made, self._timeout_s)
        except OSError as error:
            self._lose(error)

    def _take(self, frame: Frame) -> None:
        if not self.peer_version:
            self.peer_version = frame.version
        if not frame.is_response:
            self._on_request(self, frame)
        elif waited := self._waiting.pop(frame.opaque, None):
            waited.answer(self.address, frame)

    def _lose(self, error: Exception) -> None:
        """End the connection because of an error of its wire."""
        if isinstance(error, TlsFailed):
            self._end(error)
        elif not self._wire.was_open:
            self._end(TlsFailed(f"{self.address}: {error}, during the TLS handshake: it may have no TLS"))
        elif self.peer_version:
            self._end(ConnectionLost(f"{self.address}: {error}"))
        else:
            wants = "a certificate of this client (cert_file)" if self._has_tls else "TLS (tls=true)"
            self._end(ConnectionLost(f"{self.address}: {error}; it may want {wants}, or be no broker or name server"))

    def _end(self, why: QueueError) -> None:
        if not self.is_usable:
            return
        self._on_end(self, why)  # first, so that a waiter that retries gets a new connection
        self._wire.close(why)
        self._io.remove_check(self._check)
        self._dialing.cancel()
        for opaque in list(self._waiting):  # a waiting thread may pop its own request meanwhile
            if (waited := self._waiting.pop(opaque, None)) is not None:
                waited.answer(self.address, again(why))

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
        late = RequestTimedOut(f"{self.address}: no answer to request {waited.name} in {waiting_s:g} s")
        waited.answer(self.address, late)
        if self._wire.heard_at < waited.sent_at:
            self._io.run_soon(self._probe)

    def _probe(self) -> None:
        """Send a request that every broker and name server answers, and end the connection if it is not answered."""
        if self._is_probing or not self.is_usable or not self._wire.was_open:
            return
        self._is_probing = True
        probe = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
        with suppress(QueueError):
            self.submit(probe, partial(self._probed, time.monotonic()), self._timeout_s)

    def _probed(self, asked_at: float, answer: Frame | QueueError) -> None:
        self._is_probing = False
        if isinstance(answer, RequestTimedOut) and self._wire.heard_at < asked_at:
            self._end(ConnectionLost(f"{self.address}: silent for {time.monotonic() - self._wire.heard_at:.1f} s"))


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

    def answer(self, address: str, answer: Frame | QueueError) -> None:
        """Hand over what the peer at ``address`` answered, or why it did not; an error of the taker is logged."""
        try:
            self.done(answer)
        except Exception:  # noqa: BLE001 - it is logged
            _log.exception("%s: the answer to request %s was not taken", address, self.name)


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
