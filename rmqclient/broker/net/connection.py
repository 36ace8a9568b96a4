"""Connection: the bytes of one client in, answers out, and requests of the broker to this client.

All answers to one read leave in one write, or in several if they are long. The server stops reading from a client that
does not read its answers: requests already received wait, and if too many bytes wait for the client its connection is
closed. Requests beyond the client's memory limit are answered with SYSTEM_BUSY.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, cast

from rmqclient.broker.address import Address
from rmqclient.broker.limits.counters import Refusal
from rmqclient.broker.net.flight import OwnFlight
from rmqclient.broker.net.opened import Opened
from rmqclient.broker.request import Request
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import FrameError
from rmqclient.remoting.frame import RESPONSE, Frame, FrameReader, encode
from rmqclient.store.threads.logs import Log

Quick = Callable[[bytes, int, Address, Address], tuple[bytes, int]]
"""Answers complete frames: ``(data, position, remote, local)`` → the bytes of all answers, and the position of the
first frame that it did not answer."""

Answering = Callable[[Request], Frame | None]
"""Answers one request; None when the answer comes later, or never."""

BUSY: Final = "[REJECTREQUEST]system busy, start flow control for a while"
"""Remark of a stock broker that is overloaded. [NettyRemotingAbstract.processRequestCommand]"""

_log = Log(__name__)

_NOBODY: Final = Address("", 0)


class Connection(asyncio.BufferedProtocol):
    """One client. All methods are for the thread of the event loop.

    All connections read into one buffer of the server. A plain ``asyncio.Protocol`` gets a new 256 KiB buffer for each
    read, which the allocator maps and unmaps: most of the cost of a single send.
    """

    __slots__ = (
        "__weakref__",
        "_advertise",
        "_answering",
        "_calls",
        "_closed",
        "_flight",
        "_half_since",
        "_has_taken",
        "_is_paused",
        "_is_quiet",
        "_opened",
        "_out",
        "_quick",
        "_quiet_since",
        "_reader",
        "_transport",
        "_unsent",
        "_waiting",
        "has_begun",
        "local",
        "remote",
    )

    def __init__(
        self,
        answering: Answering,
        advertise: Address | None,
        opened: Opened,
        quick: Quick | None = None,
        remote: Address = _NOBODY,
    ) -> None:
        limits = opened.limits
        self._answering = answering
        self._advertise = advertise
        self._opened = opened
        self._quick = quick
        self._reader = FrameReader(limits.frame_bytes, limits.header_bytes, self._skip_taken if quick else None)
        self._flight = OwnFlight(opened.flight, limits.flight_bytes_per_connection)
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._calls: dict[int, tuple[asyncio.TimerHandle, Callable[[Frame | None], None]]] | None = None
        self._closed: list[Callable[[], None]] | None = None
        self._has_taken = False
        self._is_paused = False
        self._is_quiet = False
        self._quiet_since = 0.0
        self._half_since: float | None = None
        self._unsent = 0
        self._waiting: deque[Request] | None = None  # until the client has read earlier answers
        self.has_begun = False
        """Whether the connection was ever made; it may have ended."""
        self.remote = remote
        self.local = _NOBODY

    @property
    def is_open(self) -> bool:
        """Whether frames can be sent to the client."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_idle(self) -> bool:
        """Whether every request is answered, and every answer is sent."""
        self._opened.flight.settle()
        sent = self._transport is None or not self._transport.get_write_buffer_size()
        return sent and not self._out and not self._flight.requests

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note both addresses. ``remote`` is given, because a reset socket has no peer name any more."""
        self.has_begun = True
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._opened.limits.unsent_bytes_paused)
        name = transport.get_extra_info("sockname")
        self.local = self._advertise or (address_of(name) if name else self.local)
        self._opened.watched.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Run the callbacks that wait for this client."""
        del exc
        self._transport = None
        self._out.clear()
        self._waiting = None
        self._count_unsent(0)
        self._reader.skip_taken = None
        self._flight.hold(0)
        self._opened.watched.discard(self)
        self._opened.leave(self.remote)
        calls, self._calls = self._calls or {}, None
        for timer, done in calls.values():
            timer.cancel()
            _run(done, None)
        closed, self._closed = self._closed or [], None
        for callback in closed:
            _run(callback)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the shared buffer, whose earlier content is no longer needed."""
        del sizehint
        return self._opened.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take ``nbytes`` from the buffer."""
        self.data_received(bytes(self._opened.buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Answer every request that ``data`` completes, while the client reads the answers."""
        self._is_quiet = False
        self._has_taken = False
        reader = self._reader
        try:
            frames = reader.feed(data)
            if (frames or self._has_taken) and self._half_since is not None:
                self._flight.hold(0)  # the first frame may be complete now, and counts as a request
            if len(frames) == 1 and not self._waiting:
                self._take(frames[0])
            elif frames:
                self._take_in_turn(iter(frames))
            if reader.held or self._half_since is not None:
                self._keep_half(is_another=bool(frames) or self._has_taken)
        except FrameError as error:
            reader.damage = reader.damage or error
        self._flush()
        if reader.damage is not None:
            self._opened.counters.refuse(Refusal.FRAME, f"client {self.remote} cut off: {reader.damage}")
            self.close()

    def pause_writing(self) -> None:
        """Stop reading from a client that does not read."""
        self._is_paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Answer waiting requests, and resume reading if the client reads these answers, too."""
        self._is_paused = False
        self._is_quiet = False
        self._count_unsent(0)
        if self._waiting:
            self._take_all(_taken_from(self._waiting))
            self._flush()
        if self._transport is not None and not self._is_paused:
            self._transport.resume_reading()

    def send(self, frame: Frame) -> None:
        """Send a frame, in one write with others of this turn of the loop. Does nothing if the client is gone."""
        if not self.is_open:
            return
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(self._encoded(frame))

    def call(self, request: Frame, timeout_s: float, done: Callable[[Frame | None], None]) -> None:
        """Send a request to the client; ``done`` gets the answer, or None at the time-out or the connection's end."""
        if not self.is_open:
            done(None)
            return
        if self._calls is None:
            self._calls = {}
        request.opaque = self._opened.next_opaque()
        timer = asyncio.get_running_loop().call_later(timeout_s, self._ended, request.opaque, None)
        self._calls[request.opaque] = timer, done
        self.send(request)

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` when the connection ends, or now if it has ended."""
        if self._transport is None:
            callback()
        elif self._closed is None:
            self._closed = [callback]
        else:
            self._closed.append(callback)

    def stop_reading(self) -> None:
        """Read no more requests; those already read are answered."""
        if self._transport is not None:
            self._transport.pause_reading()

    def close(self) -> None:
        """End the connection after sending what is left."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def end(self) -> None:
        """Write as much of what is left as the system takes, and end the connection without waiting for the client."""
        self._flush()
        if self.is_idle and self._transport is not None:
            self._transport.close()
        else:
            self.abort()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def look(self, now: float) -> None:
        """End the connection if it was idle for too long, or if a frame takes too long."""
        limits = self._opened.limits
        if self._half_since is not None and self._is_paused:
            self._half_since = now  # its rest cannot arrive while reading is paused
        if self._half_since is not None and now - self._half_since >= limits.frame_s:
            self._cut_off(
                Refusal.HALF_FRAME, f"{self._reader.held:,} bytes of a frame in {limits.frame_s:g} s, and not its end"
            )
            return
        if self._is_paused and self._transport is not None:
            before = self._unsent
            self._check_unsent()
            self._is_quiet &= self._unsent >= before
        if not self._is_quiet:
            self._is_quiet, self._quiet_since = True, now
        elif now - self._quiet_since >= limits.idle_s:
            if self._is_paused:
                self._cut_off(Refusal.SLOW_READER, f"nothing read of {self._unsent:,} bytes in {limits.idle_s:g} s")
            else:
                self._cut_off(Refusal.IDLE, f"idle for {limits.idle_s:g} s")

    def _take_in_turn(self, frames: Iterator[Frame]) -> None:
        """Answer frames after the waiting ones; those that cannot be answered yet wait, too."""
        if not self._waiting:
            self._take_all(frames)
        self._let_wait(frames)

    def _take_all(self, frames: Iterator[Frame]) -> None:
        """Answer frames until the client does not read the answers fast enough."""
        out, most = self._out, self._opened.limits.unsent_bytes_paused
        size = sum(map(len, out))
        for frame in frames:
            before = len(out)
            self._take(frame)
            size += sum(map(len, out[before:]))
            if size > most:
                self._flush()
                if self._is_paused:
                    return
                size = 0

    def _let_wait(self, frames: Iterator[Frame]) -> None:
        """Keep requests until the client has read the earlier answers."""
        for frame in frames:
            if self._has_room_for(frame):
                request = Request(frame, self)
                self._opened.flight.wait_for(request, self._flight)
                self._waiting = self._waiting or deque()
                self._waiting.append(request)

    def _has_room_for(self, frame: Frame) -> bool:
        """Return whether a frame is a request that may wait. Responses, and refused requests, are finished here."""
        if frame.is_response:
            self._ended(frame.opaque, frame)
            return False
        if not self._flight.has_room_for(len(frame.body)):
            self._refuse(frame, len(frame.body))
            return False
        return True

    def _take(self, frame: Frame) -> None:
        if not self._has_room_for(frame):
            return
        request = Request(frame, self)
        try:
            answer = self._answering(request)
        except Exception as error:  # noqa: BLE001 - whatever a request holds, it must not end the connection
            _log.exception("request %d of %s failed", request.code, self.remote)
            answer = request.failure(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__} {error}")
        if answer is None:
            self._opened.flight.wait_for(request, self._flight)
        elif not frame.is_oneway:
            self._out.append(self._encoded(answer))

    def _skip_taken(self, data: bytes | memoryview, at: int) -> int:
        """Let the quick path answer frames, within the memory limits; return the position after them."""
        assert self._quick is not None
        if not self._flight.has_room_for(len(data) - at):
            return at
        answers, end = self._quick(bytes(data), at, self.remote, self.local)
        if answers:
            self._out.append(answers)
        self._has_taken |= end > at
        return end

    def _refuse(self, frame: Frame, size: int) -> None:
        """Answer a request with SYSTEM_BUSY."""
        self._opened.counters.refuse(
            Refusal.BUSY,
            f"client {self.remote}: request {frame.code} of {size:,} bytes refused: {self._flight.bytes:,} bytes of "
            f"this client and {self._opened.flight.bytes:,} of all wait; {self._opened.limits.flight_bytes:,} may",
        )
        if not frame.is_oneway and not frame.is_response:
            busy = ResponseCode.SYSTEM_BUSY
            answer = Frame(busy, {}, b"", frame.opaque, RESPONSE, BUSY, serialization=frame.serialization)
            self._out.append(self._encoded(answer))

    def _keep_half(self, *, is_another: bool) -> None:
        """Note since when a frame is incomplete, and give it up if it exceeds the memory limits."""
        held = self._reader.held
        self._flight.hold(held)
        if not held:
            self._half_since = None
        elif is_another or self._half_since is None:
            self._half_since = asyncio.get_running_loop().time()
        if held and self._flight.is_over() and (given_up := self._reader.drop()) is not None:
            self._flight.hold(0)
            self._half_since = None
            self._refuse(given_up, held)

    def _encoded(self, frame: Frame) -> bytes:
        try:
            return encode(frame)
        except FrameError as error:
            self._opened.counters.refuse(Refusal.ANSWER, f"client {self.remote}: {error}")
            failed = Frame(ResponseCode.SYSTEM_ERROR, {}, b"", frame.opaque, RESPONSE, str(error))
            return encode(failed) if frame.is_response else b""

    def _ended(self, opaque: int, frame: Frame | None) -> None:
        timer, done = (self._calls or {}).pop(opaque, (None, None))
        if timer is not None and done is not None:
            timer.cancel()
            _run(done, frame)

    def _flush(self) -> None:
        out = self._out
        if not out:
            return
        if self._transport is not None:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
            if self._is_paused:
                self._check_unsent()
            else:
                self._is_quiet = False
        out.clear()

    def _check_unsent(self) -> None:
        """Close the connection if too many bytes wait for this client, or for all."""
        if self._transport is None or self._transport.is_closing():
            return
        limits = self._opened.limits
        self._count_unsent(self._transport.get_write_buffer_size())
        if self._unsent > limits.unsent_bytes_per_connection:
            allowed = f"{limits.unsent_bytes_per_connection:,} are allowed"
            self._cut_off(Refusal.SLOW_READER, f"{self._unsent:,} bytes wait to be read: {allowed}")
        elif self._opened.unsent_bytes > limits.unsent_bytes:
            allowed = f"{self._opened.unsent_bytes:,} of all clients, {limits.unsent_bytes:,} are allowed"
            self._cut_off(Refusal.SLOW_READER, f"{self._unsent:,} bytes wait to be read, {allowed}")

    def _count_unsent(self, size: int) -> None:
        self._opened.unsent_bytes += size - self._unsent
        self._unsent = size

    def _cut_off(self, kind: Refusal, why: str) -> None:
        self._opened.counters.refuse(kind, f"client {self.remote} cut off: {why}")
        self.abort()


def address_of(name: object) -> Address:
    """Return the address in a socket's ``peername`` or ``sockname``."""
    host, port = cast("tuple[str, int]", name)[:2]
    return Address(host, port)


def _taken_from(waiting: deque[Request]) -> Iterator[Frame]:
    """Yield the frames of waiting requests; a request no longer counts as waiting once it is yielded."""
    while waiting:
        yield waiting.popleft().frame


def _run(callback: Callable[..., None], *arguments: object) -> None:
    """Run a callback; its failure must not keep the others from running."""
    try:
        callback(*arguments)
    except Exception:  # noqa: BLE001 - a room's failure must not end the connection, nor those of others
        _log.exception("a callback for a client that has gone failed")
