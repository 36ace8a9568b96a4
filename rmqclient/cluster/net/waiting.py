"""Waiting: a request of this client that has no answer yet, and a thread that waits for one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from rmqclient.errors import QueueError
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame

Done: TypeAlias = Callable[[Frame | QueueError], None]
"""Gets the answer, or why there is none; runs on the I/O thread and must not block."""


@dataclass(slots=True)
class Waiting:
    """A request that waits for its answer. Times are monotonic, s."""

    code: int
    done: Done
    sent_at: float
    deadline: float

    @property
    def name(self) -> str:
        """The name of the request, or its number."""
        return RequestCode(self.code).name if self.code in RequestCode._value2member_map_ else str(self.code)


class Answered:
    """Where one thread waits for one answer."""

    __slots__ = ("_answer", "_lock")

    def __init__(self) -> None:
        self._answer: Frame | QueueError | None = None
        self._lock = threading.Lock()
        self._lock.acquire()

    def __call__(self, answer: Frame | QueueError) -> None:
        """Take the answer; for the I/O thread."""
        self._answer = answer
        self._lock.release()

    def wait(self, timeout_s: float = -1) -> bool:
        """Wait for the answer, without end by default; False when the time is over."""
        return self._lock.acquire(timeout=timeout_s)

    def result(self) -> Frame:
        """Return the answer that came, or raise why there is none."""
        assert self._answer is not None
        if isinstance(self._answer, QueueError):
            raise self._answer
        return self._answer


def again(error: QueueError) -> QueueError:
    """Return a copy: each waiting thread raises its own, with its own traceback."""
    return type(error)(*error.args)
