"""Frame buffer: decodes frames of one connection without copying their bodies.

A :class:`rmqclient.remoting.frame.FrameReader` returns copies, so that frames may be kept. A single reader that soon
drops most bodies does not need them: bytes are received into a ring of buffers, and a body stays in place until its
buffer is used again.

Most frames of such a connection are of one kind. ``take`` is a faster reader of that kind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from rmqclient.remoting.frame import Frame, head_of, length_of

_ROOM: Final = 256 * 1024

_T = TypeVar("_T")


class FrameBuffer(Generic[_T]):
    """Receives the bytes of one connection into :meth:`space`; :meth:`frames` returns the completed frames.

    The ``turns``-th next call of :meth:`space` overwrites a returned body. ``take`` gets a buffer, the begin of a frame
    and the end of the received bytes. It returns its results for the frames of its kind there, and the begin of the
    first other frame.

    Each of the ``turns`` buffers has 256 KiB, and grows to its longest frame, 16 MiB at most.
    """

    def __init__(self, turns: int, take: Callable[[memoryview, int, int], tuple[list[_T], int]]) -> None:
        self._take = take
        self._buffers = deque(memoryview(bytearray(_ROOM)) for _ in range(turns))
        self._begin = 0  # begin of the incomplete frame, in the first buffer
        self._end = 0  # end of the received bytes
        self._wanted = 4  # bytes of the incomplete frame, as far as known

    def space(self) -> memoryview:
        """Return memory for the next bytes, at least one."""
        unfinished = self._buffers[0][self._begin : self._end]
        self._buffers.rotate(-1)
        if self._wanted > len(self._buffers[0]):
            self._buffers[0] = memoryview(bytearray(self._wanted))
        self._buffers[0][: len(unfinished)] = unfinished
        self._begin, self._end = 0, len(unfinished)
        return self._buffers[0][self._end :]

    def frames(self, count: int) -> tuple[list[_T], list[tuple[Frame, memoryview]]]:
        """Return the results of ``take`` for the last ``count`` received bytes, and the other frames in them.

        The latter are pairs of a frame without its body, and the body. Raises
        :class:`rmqclient.remoting.errors.FrameError` for bytes that are not a frame, or a frame of more than 16 MiB:
        nothing can be read after that.
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
