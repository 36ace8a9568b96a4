"""Name servers: requests to the name servers of a URL. One of them is used until it fails, then the next one.

A silent name server gets a share of the time; then the next one is asked, too, and the first answer counts. So a silent
one does not block the request, and a slow one still has the rest of the time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from queue import Empty, SimpleQueue
from typing import Final

from rmqclient.cluster.net.connection import Done
from rmqclient.errors import (
    BrokerUnreachable,
    ConnectionFull,
    NameServerUnreachable,
    QueueError,
    RequestTimedOut,
    TlsFailed,
)
from rmqclient.remoting.errors import error_of
from rmqclient.remoting.frame import Frame

FAILURES: Final = (BrokerUnreachable, RequestTimedOut, ConnectionFull)
"""Errors after which the next name server is asked."""

_PAUSE_S: Final = 0.05
_SHORTEST_S: Final = 0.05
"""Seconds that all name servers together have, at least."""

Submit = Callable[[str, Frame, Done, float], None]


class NameServers:
    """The name servers of a URL. For any thread but the I/O thread.

    ``call`` and ``submit`` are the methods of :class:`rmqclient.cluster.client.client.ClusterClient`, and ``timeout_s``
    is the limit for one request.
    """

    def __init__(
        self, addresses: tuple[str, ...], call: Callable[..., Frame], submit: Submit, timeout_s: float
    ) -> None:
        self.addresses = addresses
        self._call = call
        self._submit = submit
        self._timeout_s = timeout_s
        self._current = random.randrange(len(addresses))

    def call(self, asked: Frame, timeout_s: float | None = None, also: Collection[int] = ()) -> Frame:
        """Return the first answer of a name server; ``timeout_s`` is the limit for all of them together.

        Raises NameServerUnreachable, and the error of an answer whose code is neither 0 nor in ``also``.
        """
        asking = _Asking(self._submit, asked, max(timeout_s or self._timeout_s, _SHORTEST_S))
        count, first = len(self.addresses), self._current
        for turn in range(count):
            number = (first + turn) % count
            asking.ask(number, self.addresses[number])
            if asking.wait(turns_left=count - turn):
                break
            self._current = (number + 1) % count
        if asking.answer is None:
            raise asking.unreachable()
        self._current = asking.answered
        if asking.answer.code and asking.answer.code not in also:
            raise error_of(asking.answer, self.addresses[asking.answered])
        return asking.answer

    def call_patiently(self, asked: Frame) -> Frame:
        """As :meth:`call`, but retry during the time-out, for a name server that comes back.

        Errors of TLS are raised at once.
        """
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return self.call(asked, max(deadline - time.monotonic(), _SHORTEST_S))
            except NameServerUnreachable as error:
                if isinstance(error.__cause__, TlsFailed) or time.monotonic() + _PAUSE_S >= deadline:
                    raise
            time.sleep(_PAUSE_S)

    def call_each(self, asked: Frame, timeout_s: float | None = None, also: Collection[int] = ()) -> list[Frame]:
        """Ask all name servers, for data that each has for itself; return their answers.

        Raises the first error, after all have been asked.
        """
        answers, failures = [], []
        for address in self.addresses:
            try:
                answers.append(self._call(address, asked, timeout_s, also))
            except QueueError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return answers


class _Asking:
    """One request to several name servers, one after another. Earlier ones may still answer until the time-out."""

    def __init__(self, submit: Submit, asked: Frame, timeout_s: float) -> None:
        self._submit = submit
        self._asked = asked
        self._began = time.monotonic()
        self._deadline = self._began + timeout_s
        self._came: SimpleQueue[tuple[int, Frame | QueueError]] = SimpleQueue()
        self._waiting: dict[int, str] = {}
        self.failures: list[QueueError] = []
        self.answer: Frame | None = None
        self.answered = 0
        """Index of the name server that answered."""

    def ask(self, number: int, address: str) -> None:
        """Ask a name server."""
        self._waiting[number] = address
        left_s = max(self._deadline - time.monotonic(), _SHORTEST_S)
        self._submit(address, self._asked, lambda came: self._came.put((number, came)), left_s)

    def wait(self, turns_left: int) -> bool:
        """Wait for an answer; False if the next name server should be asked.

        That is so if the last one failed, or if its share of the time is over. Answers of earlier ones still count.
        """
        now = time.monotonic()
        until = now + max(self._deadline - now, _SHORTEST_S) / turns_left
        last = next(reversed(self._waiting))
        while self._waiting and (last in self._waiting or turns_left == 1):
            try:
                number, came = self._came.get(timeout=max(until - time.monotonic(), 0))
            except Empty:
                break
            del self._waiting[number]
            if not isinstance(came, QueueError):
                self.answer, self.answered = came, number
                return True
            if not isinstance(came, FAILURES):
                raise came
            self.failures.append(came)
        return False

    def unreachable(self) -> NameServerUnreachable:
        """Return the error for no answer in time."""
        waited_s = time.monotonic() - self._began
        silent = [RequestTimedOut(f"{each}: no answer in {waited_s:.3g} s") for each in self._waiting.values()]
        failures = [*self.failures, *silent]
        error = NameServerUnreachable("; ".join(map(str, failures)))
        error.__cause__ = failures[-1]
        return error
