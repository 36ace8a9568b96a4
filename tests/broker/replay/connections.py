"""Connections: the clients of one session, in one thread, and what the server has sent to each of them."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVar

from rmqclient.remoting.frame import Frame, FrameReader

T = TypeVar("T")


@dataclass(slots=True)
class _Client:
    socket: socket.socket
    reader: FrameReader = field(default_factory=FrameReader)
    answers: dict[int, Frame] = field(default_factory=dict)
    requests: list[Frame] = field(default_factory=list)
    is_open: bool = True


class Connections:
    """Clients by the numbers of their connections; each is opened with its first frame."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._selector = selectors.DefaultSelector()
        self._clients: dict[int, _Client] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number in list(self._clients):
            self.close(number)
        self._selector.close()

    def send(self, number: int, data: bytes) -> None:
        """Send the bytes of a frame. A server that has closed the connection gets nothing."""
        client = self._client(number)
        if client.is_open:
            try:
                client.socket.sendall(data)
            except OSError:
                client.is_open = False

    def answer(self, number: int, opaque: int, within_s: float) -> Frame | None:
        """Wait for the answer to a request, and take it; None when it does not come in time."""
        return self._wait(number, lambda client: client.answers.pop(opaque, None), within_s)

    def request(self, number: int, code: int, within_s: float) -> Frame | None:
        """Wait for a request of the server, and take it; None when it does not come in time."""

        def found(client: _Client) -> Frame | None:
            for frame in client.requests:
                if frame.code == code:
                    client.requests.remove(frame)
                    return frame
            return None

        return self._wait(number, found, within_s)

    def close(self, number: int) -> None:
        """End a connection, if it was opened."""
        client = self._clients.pop(number, None)
        if client is not None:
            self._forget(client)
            client.socket.close()

    def _client(self, number: int) -> _Client:
        if number not in self._clients:
            connected = socket.create_connection(self._address, 10)
            client = self._clients[number] = _Client(connected)
            self._selector.register(connected, selectors.EVENT_READ, client)
        return self._clients[number]

    def _wait(self, number: int, taken: Callable[[_Client], T | None], within_s: float) -> T | None:
        client, deadline = self._client(number), time.monotonic() + within_s
        while (found := taken(client)) is None and client.is_open:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return None
            for key, _ in self._selector.select(left_s):
                self._read(key.data)
        return found

    def _read(self, client: _Client) -> None:
        try:
            data = client.socket.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            client.is_open = False
            self._forget(client)
        for frame in client.reader.feed(data):
            if frame.is_response:
                client.answers[frame.opaque] = frame
            else:
                client.requests.append(frame)

    def _forget(self, client: _Client) -> None:
        if client.socket.fileno() in self._selector.get_map():
            self._selector.unregister(client.socket)
