"""Name servers: who is asked for routes. One of them is asked, until it fails; then the next one."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import Final

from rmqclient.errors import BrokerUnreachable, ConnectionFull, NameServerUnreachable, QueueError, RequestTimedOut
from rmqclient.remoting.frame import Frame

FAILURES: Final = (BrokerUnreachable, RequestTimedOut, ConnectionFull)
"""Errors after which the next name server is asked."""


class NameServers:
    """The name servers of a URL; for any thread.

    ``call`` asks one address, as :meth:`rmqclient.cluster.client.client.ClusterClient.call` does.
    """

    def __init__(self, addresses: tuple[str, ...], call: Callable[..., Frame]) -> None:
        self.addresses = addresses
        self._call = call
        self._current = random.randrange(len(addresses))

    def call(self, asked: Frame, timeout_s: float | None = None, also: Collection[int] = ()) -> Frame:
        """Return the answer of the first name server that gives one; each has ``timeout_s`` for it.

        Raises NameServerUnreachable, and the error of an answer whose code is neither 0 nor in ``also``.
        """
        failures: list[QueueError] = []
        for _ in self.addresses:
            current = self._current
            try:
                return self._call(self.addresses[current], asked, timeout_s, also)
            except FAILURES as error:
                failures.append(error)
                self._current = (current + 1) % len(self.addresses)
        raise NameServerUnreachable("; ".join(map(str, failures))) from failures[-1]

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
