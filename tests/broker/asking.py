"""Asking: a broker over a real store, asked as its connections ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqclient.broker.broker import Broker
from rmqclient.broker.request import Request
from rmqclient.broker.settings import Address, ServeSettings
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request
from rmqclient.store import open_store

LONGEST_S = 20.0
LOCAL = Address("127.0.0.1", 9876)


class AskingPeer:
    """A connection that keeps what it is sent."""

    def __init__(self, local: Address) -> None:
        self.remote = Address("10.0.0.9", 40000)
        self.local = local
        self.is_open = True
        self.sent: list[Frame] = []
        self.called: list[Frame] = []
        self.reply: Frame | None = None
        """What the client answers to requests of the broker."""
        self._arrived = asyncio.Event()

    def send(self, frame: Frame) -> None:
        """Keep a frame."""
        self.sent.append(frame)
        self._arrived.set()

    def call(self, request: Frame, timeout_s: float, done: Callable[[Frame | None], None]) -> None:
        """Answer a request of the broker."""
        del timeout_s
        self.called.append(request)
        done(self.reply)

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Never close."""

    async def next_frame(self) -> Frame:
        """Return the next frame that is sent."""
        await asyncio.wait_for(self._arrived.wait(), LONGEST_S)
        return self.sent[-1]


class Asking:
    """A client of one broker. ``local``: by which address it came in."""

    def __init__(self, broker: Broker, local: Address = LOCAL) -> None:
        self.broker = broker
        self.local = local

    def ask(self, code: RequestCode, body: bytes = b"", *, version: int = 407, **fields: Any) -> Frame:
        """Return the answer to a request."""
        frame = request(code, body, **fields)
        frame.version = version
        return self.ask_frame(frame)

    def ask_frame(self, frame: Frame, peer: AskingPeer | None = None) -> Frame:
        """Return the answer to a request that is a frame."""
        return asyncio.run(self._answered(frame, peer))

    async def _answered(self, frame: Frame, peer: AskingPeer | None) -> Frame:
        peer = peer or AskingPeer(self.local)
        answer = self.broker.answer(Request(frame, peer))
        return answer if answer is not None else await peer.next_frame()


@contextmanager
def asking(root: Path, **settings: Any) -> Iterator[Asking]:
    """Open the store in ``root``, and ask a broker over it."""
    with open_store(root) as store:
        broker = Broker(store, ServeSettings(root, **settings))
        try:
            yield Asking(broker)
        finally:
            broker.close()
