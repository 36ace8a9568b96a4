"""Frame buffer: the bytes of one connection, received in place and read as frames without copying their bodies.

A :class:`rmqclient.remoting.frame.FrameReader` copies what it returns, so that frames may be kept. Who reads a
connection alone, and is done with most bodies soon, needs few copies: the bytes go to some buffers in turns, and a body
stays where it is until its buffer has its turn again.

Most frames of such a connection are of one kind. What reads that kind alone, and faster, is called ``take`` here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from rmqclient.remoting.frame import Frame, head_of, length_of

_ROOM: Final = 256 * 1024

_T = TypeVar("_T")


class FrameBuffer(Generic[_T]):
    """Receives the bytes of one connection: they go to :meth:`space`, and :meth:`frames` says what they complete.

    A body that was returned is valid for ``turns`` more calls of :meth:`space`, the last of which overwrites it.
    ``take`` gets the buffer, where a frame begins in it, and where what was received ends. It returns what it makes of
    the frames of its kind that stand there, and where the first other one begins.

    Each of the ``turns`` buffers has 256 KiB, and grows to the longest frame that it met, 16 MiB at most.
    """

    def __init__(self, turns: int, take: Callable[[memoryview, int, int], tuple[list[_T], int]]) -> None:
        self._take = take
        self._buffers = deque(memoryview(bytearray(_ROOM)) for _ in range(turns))
        self._begin = 0  # of the unfinished frame, in the first buffer
        self._end = 0  # of what was received
        self._wanted = 4  # bytes of the unfinished frame, as far as its length is known

    def space(self) -> memoryview:
        """Return where the next bytes go, at least one of them."""
        unfinished = self._buffers[0][self._begin : self._end]
        self._buffers.rotate(-1)
        if self._wanted > len(self._buffers[0]):
            self._buffers[0] = memoryview(bytearray(self._wanted))
        self._buffers[0][: len(unfinished)] = unfinished
        self._begin, self._end = 0, len(unfinished)
        return self._buffers[0][self._end :]

    def frames(self, count: int) -> tuple[list[_T], list[tuple[Frame, memoryview]]]:
        """Return what ``take`` made of the ``count`` bytes that were received last, and the other frames in them.

        The latter are without their bodies, which stand beside them. Raises
        :class:`rmqclient.remoting.errors.FrameError` if what comes is no frame, or one of more than 16 MiB: nothing can
        be read after it.
        """
        received = self._buffers[0]
        self._end += count
        taken: list[_T] = []
        others: list[tuple[Frame, memoryview]] = []
        while True:
            more, self._begin = self._take(received, self._begin, self._end)
            taken += more
            self._wanted = 4 + (length_of(received, self._begin) if self._end - self._begin >= 4 else 0)
            end = self._begin + self._wanted
            if self._wanted == 4 or end > self._end:
                return taken, others
            frame, body = head_of(received, self._begin + 4, end)
            others.append((frame, received[body:end]))
            self._begin = end
