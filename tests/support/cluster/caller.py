"""A connection to one broker that a test speaks on by itself, without a client."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from rmqclient.remoting.frame import Frame, FrameReader, encode


class Caller:
    """A connection that asks one question after the other."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = FrameReader()
        self._came: list[Frame] = []
        self._opaques = count(1)

    def send(self, frame: Frame) -> None:
        """Send a frame."""
        self._connection.sendall(encode(frame))

    def receive(self) -> Frame:
        """Return the next frame. Raises ConnectionResetError if the peer hangs up."""
        while not self._came:
            data = self._connection.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the peer hung up")
            self._came = self._reader.feed(data)
        return self._came.pop(0)

    def ask(self, frame: Frame) -> Frame:
        """Send a request, under an opaque of its own, and return what comes next."""
        frame.opaque = next(self._opaques)
        self.send(frame)
        return self.receive()


@contextmanager
def connected(address: str) -> Iterator[Caller]:
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        yield Caller(connection)
