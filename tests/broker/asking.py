"""Asking: a broker over a real store, asked as its connections ask it, on an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqclient.broker.address import Address
from rmqclient.broker.broker import Broker
from rmqclient.broker.request import Request
from rmqclient.broker.settings import ServeSettings
from rmqclient.remoting.bodies import Heartbeat
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request
from rmqclient.store import StoreConfig, open_store

LONGEST_S = 20.0
LOCAL = Address("127.0.0.1", 9876)


class AskingPeer:
    """A connection that keeps what it is sent."""

    def __init__(self, local: Address = LOCAL, remote: Address = Address("10.0.0.9", 40_000)) -> None:  # noqa: B008
        self.remote = remote
        self.local = local
        self.is_open = True
        self.sent: list[Frame] = []
        self.called: list[Frame] = []
        self.reply: Frame | None = None
        """What the client answers to requests of the broker; None when it does not."""
        self._came = threading.Condition()

    def send(self, frame: Frame) -> None:
        """Keep a frame."""
        with self._came:
            self.sent.append(frame)
            self._came.notify_all()

    def call(self, request: Frame, timeout_s: float, done: Callable[[Frame | None], None]) -> None:
        """Answer a request of the broker."""
        del timeout_s
        self.called.append(request)
        done(self.reply)

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Never close."""

    def wait_for(self, wanted: Callable[[Frame], bool]) -> Frame:
        """Return the first frame that was sent or comes, and is wanted. Raises TimeoutError."""
        with self._came:
            if not self._came.wait_for(lambda: any(map(wanted, self.sent)), LONGEST_S):
                raise TimeoutError(f"of {len(self.sent)} frames none is wanted: {[each.code for each in self.sent]}")
            return next(filter(wanted, self.sent))


class Asking:
    """A client of one broker. ``local``: by which address it came in."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop, local: Address = LOCAL) -> None:
        self.broker = broker
        self.loop = loop
        self.local = local

    def at(self, local: Address) -> Asking:
        """Return a client that came in by another address."""
        return Asking(self.broker, self.loop, local)

    def ask(
        self, code: RequestCode, body: bytes = b"", *, version: int = 407, peer: AskingPeer | None = None, **fields: Any
    ) -> Frame:
        """Return the answer to a request."""
        frame = request(code, body, **fields)
        frame.version = version
        return self.ask_frame(frame, peer)

    def ask_frame(self, frame: Frame, peer: AskingPeer | None = None) -> Frame:
        """Return the answer to a request that is a frame."""
        peer = peer or AskingPeer(self.local)
        answer = asyncio.run_coroutine_threadsafe(self._answer(frame, peer), self.loop).result(LONGEST_S)
        return answer or peer.wait_for(lambda sent: sent.is_response and sent.opaque == frame.opaque)

    def beat(self, heartbeat: Heartbeat, remote: Address) -> AskingPeer:
        """Return a new connection that has sent a heartbeat."""
        peer = AskingPeer(self.local, remote)
        assert self.ask(RequestCode.HEART_BEAT, heartbeat.encode(), peer=peer).code == 0
        return peer

    async def _answer(self, frame: Frame, peer: AskingPeer) -> Frame | None:
        return self.broker.answer(Request(frame, peer))


async def _begin(broker: Broker) -> None:
    broker.producing.begin(asyncio.get_running_loop())


@contextmanager
def asking(root: Path, config: StoreConfig | None = None, **settings: Any) -> Iterator[Asking]:
    """Open the store in ``root``, and ask a broker over it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        with open_store(root, config) as store:
            broker = Broker(store, ServeSettings(root, **settings))
            try:
                asyncio.run_coroutine_threadsafe(_begin(broker), loop).result(LONGEST_S)
                yield Asking(broker, loop)
            finally:
                broker.close()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
