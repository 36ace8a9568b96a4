"""Waiting: requests without an answer yet, and threads that wait for one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from rmqclient.errors import QueueError
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame

Done: TypeAlias = Callable[[Frame | QueueError], None]
"""Gets the answer or the error. Runs on the I/O thread and must not block."""


@dataclass(slots=True)
class Waiting:
    """A request that waits for its answer. Times are in monotonic seconds."""

    code: int
    done: Done
    sent_at: float
    deadline: float

    @property
    def name(self) -> str:
        """The name of the request's code, or its number."""
        return RequestCode(self.code).name if self.code in RequestCode._value2member_map_ else str(self.code)


class Answered:
    """Lets one thread wait for one answer."""

    __slots__ = ("_answer", "_lock")

    def __init__(self) -> None:
        self._answer: Frame | QueueError | None = None
        self._lock = threading.Lock()
        self._lock.acquire()

    def __call__(self, answer: Frame | QueueError) -> None:
        """Take the answer. For the I/O thread."""
        self._answer = answer
        self._lock.release()

    def wait(self, timeout_s: float = -1) -> bool:
        """Wait for the answer, by default without a limit; False at the time-out."""
        return self._lock.acquire(timeout=timeout_s)

    def result(self) -> Frame:
        """Return the answer, or raise the error."""
        assert self._answer is not None
        if isinstance(self._answer, QueueError):
            raise self._answer
        return self._answer


def again(error: QueueError) -> QueueError:
    """Return a copy, so that each waiting thread raises its own exception with its own traceback."""
    return type(error)(*error.args)
