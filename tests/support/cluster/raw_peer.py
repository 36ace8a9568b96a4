"""A peer of a connection that behaves as badly as a test wants: it serves each socket with a function of the test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from rmqclient.remoting.errors import FrameError
from rmqclient.remoting.frame import RESPONSE, Frame, FrameReader, encode

PATIENCE_S = 20.0

Serve = Callable[[socket.socket], None]


class RawPeer:
    """Where the peer listens, and what it has accepted."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.sockets: list[socket.socket] = []
        """In the order in which they were accepted."""
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                accepted.settimeout(PATIENCE_S)
                self.sockets.append(accepted)
                thread = threading.Thread(target=self._run, args=(accepted,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self, accepted: socket.socket) -> None:
        with accepted, suppress(OSError, FrameError):
            self._serve(accepted)

    def close(self) -> None:
        """Hang up, listen no more, and wait for the threads."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for accepted in list(self.sockets):
            with suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)


@contextmanager
def raw_peer(serve: Serve) -> Iterator[RawPeer]:
    """Run a peer for the length of a block."""
    peer = RawPeer(serve)
    try:
        yield peer
    finally:
        peer.close()


def requests_of(accepted: socket.socket) -> Iterator[Frame]:
    """Return the frames that come, until the client hangs up."""
    reader = FrameReader()
    while data := accepted.recv(1 << 16):
        yield from reader.feed(data)


def echoed(asked: Frame) -> bytes:
    """Return the answer that has the body of its request."""
    return encode(Frame(0, body=asked.body, opaque=asked.opaque, flag=RESPONSE))


def echo(accepted: socket.socket) -> None:
    """Answer each request with its own body."""
    for frame in requests_of(accepted):
        if not frame.is_oneway:
            accepted.sendall(echoed(frame))


def stay_silent(accepted: socket.socket) -> None:
    """Read, and never answer."""
    for _ in requests_of(accepted):
        pass


def answer_with(data: bytes) -> Serve:
    """Return what answers the first request with these bytes, whatever they are, and then reads on."""

    def serve(accepted: socket.socket) -> None:
        next(requests_of(accepted))
        accepted.sendall(data)
        stay_silent(accepted)

    return serve
