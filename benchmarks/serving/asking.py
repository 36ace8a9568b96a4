"""Asking: a connection to a server that asks one question after the other, as cheaply as Python can."""

from __future__ import annotations

import socket
from itertools import count
from types import TracebackType
from typing import Self

from rmqclient.remoting.frame import Frame, FrameReader, encode


class Asking:
    """One connection; a context manager."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader()
        self._opaques = count(1)

    def send(self, frame: Frame) -> int:
        """Send a request under an opaque of its own, which is returned."""
        frame.opaque = next(self._opaques)
        self._socket.sendall(encode(frame))
        return frame.opaque

    def ask(self, frame: Frame) -> Frame:
        """Return the answer to a request; what else comes meanwhile is dropped."""
        opaque = self.send(frame)
        while True:
            for answer in self._reader.feed(self._socket.recv(1 << 20)):
                if answer.opaque == opaque:
                    return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
