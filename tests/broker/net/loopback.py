"""A listener on a free port of loopback, with its event loop in a thread, and plain sockets that talk to it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self, TypeVar

from rmqclient.broker.address import Address
from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.limits.limits import Limits
from rmqclient.broker.net.connection import Answering, Connection, Quick
from rmqclient.broker.net.listener import Listener
from rmqclient.broker.net.opened import Opened
from rmqclient.broker.net.tls import Tls
from rmqclient.broker.request import Request
from rmqclient.broker.settings import TlsMode, TlsSettings
from rmqclient.remoting.frame import Frame, FrameReader, encode

PATIENCE_S = 20.0
PLAIN = TlsSettings(TlsMode.DISABLED)
T = TypeVar("T")


class ClockedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is ahead."""

    ahead_s = 0.0

    def time(self) -> float:
        """Return the seconds of its clock."""
        return super().time() + self.ahead_s


class Loopback:
    """A listener that runs. ``made`` has its connections in the order in which they were made."""

    def __init__(self, answering: Answering, limits: Limits, tls: TlsSettings, quick: Quick | None) -> None:
        self.counters = Counters()
        self.opened = Opened(limits, self.counters)
        self.made: list[Connection] = []
        self._answering = answering
        self._quick = quick
        self._tls = Tls(tls)
        self._ready = threading.Event()
        self._ended: asyncio.Event
        self._loop = ClockedLoop()
        self.address: Address
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()
        assert self._ready.wait(PATIENCE_S)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        self._ended = asyncio.Event()
        listener = Listener(self.opened, self._make, self._tls)
        self.address = listener.listen(Address("127.0.0.1", 0))
        self.opened.start()
        self._ready.set()
        await self._ended.wait()
        listener.close()
        await self.opened.end()

    def _make(self, remote: Address) -> Connection:
        connection = Connection(self._answering, None, self.opened, self._quick, remote)
        self.made.append(connection)
        return connection

    def on_loop(self, function: Callable[[], T]) -> T:
        """Run a function on the thread of the event loop."""

        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE_S)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds, asked for on the event loop's thread in each of its turns."""

        async def wait() -> None:
            while not condition():
                await asyncio.sleep(0.001)

        asyncio.run_coroutine_threadsafe(asyncio.wait_for(wait(), PATIENCE_S), self._loop).result(PATIENCE_S + 1)

    def let_pass(self, seconds: float) -> None:
        """Let so much time pass at once, and wait for the next look at the time limits of the connections."""

        def move() -> object:
            self._loop.ahead_s += seconds
            return self.opened._timer

        before = self.on_loop(move)
        self.until(lambda: self.opened._timer is not before)

    def refused(self, kind: Refusal) -> int:
        """Return how often this was refused."""
        return self.counters.count(kind)

    def close(self) -> None:
        """End the event loop."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


@contextmanager
def loopback(
    answering: Answering, limits: Limits | None = None, tls: TlsSettings = PLAIN, quick: Quick | None = None
) -> Iterator[Loopback]:
    """Run a listener for the length of a block."""
    running = Loopback(answering, limits or Limits(), tls, quick)
    try:
        yield running
    finally:
        running.close()


class Caller:
    """A client that is a socket, and the frames that it gets."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(PATIENCE_S)
        self._reader = FrameReader()
        self._frames: list[Frame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, *frames: Frame) -> None:
        """Send frames in one write."""
        self.sock.sendall(b"".join(map(encode, frames)))

    def receive(self) -> Frame | None:
        """Return the next frame; None at the end of the connection."""
        while not self._frames:
            try:
                data = self.sock.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                return None
            self._frames += self._reader.feed(data)
        return self._frames.pop(0)

    def ask(self, frame: Frame) -> Frame:
        """Return the answer to a request."""
        self.send(frame)
        answer = self.receive()
        assert answer is not None
        return answer


def caller(address: Address) -> Caller:
    """Connect."""
    return Caller(socket.create_connection(address, PATIENCE_S))


def echo(request: Request) -> Frame:
    """Answer with the body of the request."""
    return request.success(request.body)
