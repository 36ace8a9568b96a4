"""A client that sends mutated requests, and looks at what comes back.

A tenth of the requests is mutated one by one, of every code. The others come in bulk: of some thousand frames that
clients send all the time, each mutated once, a random choice is put together, and random bytes of the bodies change.
"""

from __future__ import annotations

import random
import select
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Final

from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import FrameError, RemotingError
from rmqclient.remoting.frame import MAX_FRAME_BYTES, RESPONSE, Frame, FrameReader, encode
from tests.torture.damage.frames import Requests

_BATCH: Final = 250
_BATCHES: Final = 20
_BULK_BATCH: Final = 1_000
_BULK_BATCHES: Final = 5
"""After so many a connection ends: held pulls and what else belongs to it would grow without an end."""

_BULK_SHARE: Final = 9
"""So many requests come in bulk for each one that is made by itself."""

_POOL: Final = 4_000
_READ_BY_EYE: Final = 16
"""Of one in so many batches of the bulk the answers are read; of the others only their lengths are checked."""

_PATIENCE_S: Final = 120.0
_MADE_SHARE: Final = 0.000_2
_READ_BYTES: Final = 1 << 20
_CODES: Final = frozenset(int(code) for code in ResponseCode)
_PREFIX: Final = struct.Struct(">II")


@dataclass(frozen=True, slots=True)
class Share:
    """What one client sends."""

    seed: int
    frames: int


@dataclass(slots=True)
class Seen:
    """What one client saw.

    ``counts`` has ``read`` requests and how many of these came in ``bulk``, ``connections`` and how many of these were
    ``closed`` behind bytes that are not a frame, ``frames`` that came back, ``answers`` that were read, and of these
    ``success``.
    """

    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Ended(Exception):
    """A connection has ended."""


@dataclass(frozen=True, slots=True)
class Batch:
    """``data`` are so many frames; ``broken`` is what comes behind them and is no frame, or nothing."""

    data: bytes
    frames: int
    broken: bytes = b""
    is_bulk: bool = False


@cache
def requests() -> Requests:
    """Return what is mutated."""
    return Requests(_MADE_SHARE)


def send_share(address: str, share: Share) -> Seen:
    """Send a share, on one connection after the other, until all of it was read; stop at the first problem."""
    rng, seen = random.Random(share.seed), Seen()
    bulk = Bulk(rng) if share.frames > _POOL else None
    host, _, port = address.rpartition(":")
    while (left := share.frames - seen.counts["read"]) > 0 and not seen.problems:
        is_bulk = bulk is not None and seen.counts["bulk"] * (_BULK_SHARE + 1) < seen.counts["read"] * _BULK_SHARE
        batches = bulk.batches(left) if bulk is not None and is_bulk else _single(rng, left)
        seen.counts["connections"] += 1
        try:
            with socket.create_connection((host, int(port)), _PATIENCE_S) as sock:
                _Connection(sock, seen, rng).send(batches)
        except (OSError, Ended, RemotingError) as error:
            where = f"after {seen.counts['read']:,} requests of a share with the seed {share.seed}"
            seen.problems.append(f"{type(error).__name__} {error}, {where}, in bulk: {is_bulk}")
    return seen


def _single(rng: random.Random, most: int) -> Iterator[Batch]:
    """Yield batches of requests that are mutated one by one, until one is no frame."""
    for _ in range(_BATCHES):
        batch: list[bytes] = []
        broken = b""
        while len(batch) < min(_BATCH, most) and not broken:
            mutated = requests().one(rng)
            if mutated.is_whole:
                batch.append(mutated.raw)
            else:
                broken = mutated.raw
        yield Batch(b"".join(batch), len(batch), broken)
        most -= len(batch) + bool(broken)
        if broken or not most:
            return


class Bulk:
    """Frames that were mutated once, and are mutated again and again."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._pool = [requests().often(rng) for _ in range(_POOL)]

    def batches(self, most: int) -> Iterator[Batch]:
        """Yield batches of these frames, each with other bytes in about every second body."""
        for _ in range(_BULK_BATCHES):
            frames = self._rng.choices(self._pool, k=min(_BULK_BATCH, most))
            data = bytearray(b"".join(frames))
            for frame, end in zip(frames, accumulate(map(len, frames)), strict=True):
                chance = self._rng.random()
                body = len(frame) - 8 - (_PREFIX.unpack_from(frame)[1] & 0xFFFFFF)
                if chance < 0.5 and body:
                    data[end - 1 - int(chance * 2 * body)] = int(chance * 65_536) & 0xFF
            yield Batch(bytes(data), len(frames), is_bulk=True)
            most -= len(frames)
            if not most:
                return


class _Connection:
    def __init__(self, sock: socket.socket, seen: Seen, rng: random.Random) -> None:
        self._sock = sock
        self._seen = seen
        self._rng = rng
        self._reader = FrameReader()
        self._rest = b""
        self._asked = 0

    def send(self, batches: Iterator[Batch]) -> None:
        """Send batches, and wait until the server has read each. Raises Ended, RemotingError, OSError."""
        counts = self._seen.counts
        for batch in batches:
            self._asked = self._rng.getrandbits(30) | 1 << 30
            question = encode(Frame(RequestCode.GET_BROKER_CLUSTER_INFO, opaque=self._asked))
            self._exchange(batch.data + question, is_read=not batch.is_bulk or not self._rng.randrange(_READ_BY_EYE))
            counts["read"] += batch.frames
            counts["bulk"] += batch.frames * batch.is_bulk
            if batch.broken:
                self._break(batch.broken)

    def _exchange(self, data: bytes, *, is_read: bool) -> None:
        """Write, and read until the question is answered. A server reads no more of a client that does not read."""
        left, poll = memoryview(data), select.poll()
        while True:
            poll.register(self._sock, select.POLLIN | (select.POLLOUT if left else 0))
            ready = poll.poll(_PATIENCE_S * 1000)
            if not ready:
                raise TimeoutError(f"no answer within {_PATIENCE_S:g} s")
            if ready[0][1] & select.POLLOUT:
                left = left[self._sock.send(left, socket.MSG_DONTWAIT) :]
            if ready[0][1] & ~select.POLLOUT and self._read(is_read=is_read):
                return

    def _break(self, broken: bytes) -> None:
        """Send bytes that are not a frame, which end the connection."""
        with suppress(ConnectionError, Ended):
            self._sock.sendall(broken)
            self._sock.shutdown(socket.SHUT_WR)
            while True:
                self._read(is_read=True)
        self._seen.counts["read"] += 1
        self._seen.counts["closed"] += 1

    def _read(self, *, is_read: bool) -> bool:
        """Take what is there; return whether the question was answered. Raises Ended, RemotingError."""
        data = self._sock.recv(_READ_BYTES)
        if not data:
            raise Ended("the server closed a connection on which only frames came")
        data = self._rest + data
        end = self._end_of_frames(data)
        self._rest = data[end:]
        if is_read:
            self._look_at(self._reader.feed(data[:end]))
            if self._reader.damage is not None:
                raise self._reader.damage
        return b'"opaque":%d,' % self._asked in data[:end]

    def _end_of_frames(self, data: bytes) -> int:
        """Return where the last whole frame ends. Raises FrameError for lengths that no frame has."""
        at = 0
        while len(data) - at >= 8:
            total, mark = _PREFIX.unpack_from(data, at)
            if not 4 <= total < MAX_FRAME_BYTES or mark >> 24 > 1 or mark & 0xFFFFFF > total - 4:
                raise FrameError(f"an answer begins with {data[at : at + 8]!r}")
            if len(data) - at < total + 4:
                break
            self._seen.counts["frames"] += 1
            at += total + 4
        return at

    def _look_at(self, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.flag & RESPONSE:
                self._seen.counts["answers"] += 1
                self._seen.counts["success"] += frame.code == ResponseCode.SUCCESS
                if frame.code not in _CODES:
                    self._seen.problems.append(f"an answer with the code {frame.code}: {frame.remark}")
