"""A network that fails: what it passes on in both directions, and how it is disturbed for one round."""

from __future__ import annotations

import random
import selectors
import socket
import time
from enum import StrEnum


class Trouble(StrEnum):
    """What the network does, some moments after a connection was made."""

    NONE = "none"
    CUT = "cut"  #: both directions end
    DEAF = "deaf"  #: what the replica says does not arrive any more, and nobody hangs up
    MUTE = "mute"  #: what the primary says does not arrive
    HOLE = "hole"  #: nothing arrives any more in either direction, and nobody hangs up
    SLOW = "slow"  #: a few bytes at a time
    FLIP = "flip"  #: one bit is another one
    SHORT = "short"  #: some bytes are missing, and the rest goes on


def run(port: int, target: int, trouble: Trouble, seed: int) -> None:
    """Pass connections at ``port`` on to ``target``, until the process is killed."""
    chance = random.Random(seed)
    with socket.create_server(("127.0.0.1", port)) as listening:
        while True:
            replica, _ = listening.accept()
            try:
                with replica, socket.create_connection(("127.0.0.1", target), 1) as primary:
                    _Passing(replica, primary, trouble, chance).run()
            except OSError:
                continue


class _Passing:
    """One connection; the trouble comes after a random number of bytes."""

    def __init__(self, replica: socket.socket, primary: socket.socket, trouble: Trouble, chance: random.Random) -> None:
        self._replica, self._primary = replica, primary
        self._trouble = trouble
        self._chance = chance
        self._left = int(chance.expovariate(1 / 30_000))

    def run(self) -> None:
        selector = selectors.DefaultSelector()
        selector.register(self._replica, selectors.EVENT_READ, self._primary)
        selector.register(self._primary, selectors.EVENT_READ, self._replica)
        with selector:
            while True:
                for key, _ in selector.select():
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    data = source.recv(200 if self._trouble is Trouble.SLOW else 1 << 16)
                    if not data:
                        return
                    self._pass(data, key.data, is_report=source is self._replica)

    def _pass(self, data: bytes, to: socket.socket, *, is_report: bool) -> None:
        """Pass bytes on, or what becomes of them. Raises OSError."""
        self._left -= len(data)
        if self._left > 0 or self._trouble is Trouble.NONE:
            to.sendall(data)
            return
        match self._trouble:
            case Trouble.CUT:
                raise ConnectionResetError
            case Trouble.DEAF | Trouble.MUTE:
                if is_report is (self._trouble is Trouble.MUTE):
                    to.sendall(data)
            case Trouble.HOLE:
                pass
            case Trouble.SLOW:
                time.sleep(0.001)
                to.sendall(data)
            case Trouble.FLIP | Trouble.SHORT:
                to.sendall(self._damaged(data))
                self._left = int(self._chance.expovariate(1 / 30_000)) + 1

    def _damaged(self, data: bytes) -> bytes:
        at = self._chance.randrange(len(data))
        if self._trouble is Trouble.SHORT:
            return data[:at] + data[at + self._chance.randrange(1, 50) :]
        damaged = bytearray(data)
        damaged[at] ^= 1 << self._chance.randrange(8)
        return bytes(damaged)
