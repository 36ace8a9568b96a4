"""Connection: the bytes of one client in, answers out, and requests of the broker to this client."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import cast

from rmqclient.broker.request import Request
from rmqclient.broker.settings import Address
from rmqclient.remoting.errors import FrameError
from rmqclient.remoting.frame import Frame, FrameReader, encode

_log = logging.getLogger(__name__)

Answering = Callable[[Request], Frame | None]
"""Answers one request; None when the answer comes later, or never."""


class Connection(asyncio.Protocol):
    """One client. All methods are for the thread of the event loop."""

    def __init__(self, answering: Answering, advertise: Address | None, opened: set[Connection]) -> None:
        self._answering = answering
        self._advertise = advertise
        self._opened = opened
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._opaques = itertools.count(1)
        self._calls: dict[int, tuple[asyncio.TimerHandle, Callable[[Frame | None], None]]] = {}
        self._closed: list[Callable[[], None]] = []
        self.remote = Address("", 0)
        self.local = Address("", 0)

    @property
    def is_open(self) -> bool:
        """Whether the client can still be told anything."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note both ends."""
        self._transport = cast("asyncio.Transport", transport)
        self.remote = _address(transport.get_extra_info("peername"))
        self.local = self._advertise or _address(transport.get_extra_info("sockname"))
        self._opened.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits for this client."""
        del exc
        self._transport = None
        self._opened.discard(self)
        calls, self._calls = self._calls, {}
        for timer, done in calls.values():
            timer.cancel()
            done(None)
        closed, self._closed = self._closed, []
        for callback in closed:
            callback()

    def data_received(self, data: bytes) -> None:
        """Answer every request that ``data`` completes; all answers leave in one write."""
        try:
            for frame in self._reader.feed(data):
                self._take(frame)
        except FrameError as error:
            _log.warning("client %s: connection closed: %s", self.remote, error)
            self.close()
            return
        self._flush()

    def send(self, frame: Frame) -> None:
        """Send a frame with what else is sent in this turn of the loop."""
        if not self._out and self.is_open:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(encode(frame))

    def call(self, request: Frame, timeout_s: float, done: Callable[[Frame | None], None]) -> None:
        """Send a request to the client; ``done`` gets the answer, None after the time or the end of the connection."""
        if not self.is_open:
            done(None)
            return
        request.opaque = next(self._opaques)
        timer = asyncio.get_running_loop().call_later(timeout_s, self._ended, request.opaque, None)
        self._calls[request.opaque] = timer, done
        self.send(request)

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` when the connection ends, at once if it has ended."""
        if self._transport is None:
            callback()
        else:
            self._closed.append(callback)

    def close(self) -> None:
        """Send what is left, and end the connection."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _take(self, frame: Frame) -> None:
        if frame.is_response:
            self._ended(frame.opaque, frame)
            return
        answer = self._answering(Request(frame, self))
        if answer is not None and not frame.is_oneway:
            self._out.append(encode(answer))

    def _ended(self, opaque: int, frame: Frame | None) -> None:
        timer, done = self._calls.pop(opaque, (None, None))
        if timer is not None and done is not None:
            timer.cancel()
            done(frame)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None:
            self._transport.write(b"".join(out))


def _address(name: object) -> Address:
    host, port = cast("tuple[str, int]", name)[:2]
    return Address(host, port)
