"""Name servers: who is asked for routes. One of them is asked, until it fails; then the next one."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from typing import Final

from rmqclient.errors import (
    BrokerUnreachable,
    ConnectionFull,
    NameServerUnreachable,
    QueueError,
    RequestTimedOut,
    TlsFailed,
)
from rmqclient.remoting.frame import Frame

FAILURES: Final = (BrokerUnreachable, RequestTimedOut, ConnectionFull)
"""Errors after which the next name server is asked."""

_PAUSE_S: Final = 0.05
_SHORTEST_S: Final = 0.05
"""What all name servers together have at least, also at the end of the time."""


class NameServers:
    """The name servers of a URL; for any thread.

    ``call`` asks one address, as :meth:`rmqclient.cluster.client.client.ClusterClient.call` does, and ``timeout_s`` is
    how long that may take at most.
    """

    def __init__(self, addresses: tuple[str, ...], call: Callable[..., Frame], timeout_s: float) -> None:
        self.addresses = addresses
        self._call = call
        self._timeout_s = timeout_s
        self._current = random.randrange(len(addresses))

    def call(self, asked: Frame, timeout_s: float | None = None, also: Collection[int] = ()) -> Frame:
        """Return the answer of the first name server that gives one; all of them together have ``timeout_s`` for it.

        Raises NameServerUnreachable, and the error of an answer whose code is neither 0 nor in ``also``.
        """
        failures: list[QueueError] = []
        deadline = time.monotonic() + (timeout_s or self._timeout_s)
        for left in range(len(self.addresses), 0, -1):  # each has its share of the time, so a silent one takes no more
            current = self._current
            share_s = max(deadline - time.monotonic(), _SHORTEST_S) / left
            try:
                return self._call(self.addresses[current], asked, share_s, also)
            except FAILURES as error:
                failures.append(error)
                self._current = (current + 1) % len(self.addresses)
        raise NameServerUnreachable("; ".join(map(str, failures))) from failures[-1]

    def call_patiently(self, asked: Frame) -> Frame:
        """Return the answer of a name server, also of one that comes back within the time that a request may take.

        Raises as :meth:`call`. What is wrong with TLS is raised at once.
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
        """Return the answers of all name servers, for what each of them keeps for itself.

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
