"""Arrival bell: rings when a message comes to one of some queues of a cluster.

While a thread waits, each queue has a pull that its broker keeps until a message comes (a long poll). The answer rings
the bell and is thrown away: whoever was woken reads for itself.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

from rmqclient.backend.bells import ThreadBell
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.reading.queues import Queues
from rmqclient.errors import QueueError
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue

_WAIT_MS: Final = 10_000
_TIMEOUT_S: Final = 20.0


class ArrivalBell(ThreadBell):
    """Wakes the threads that wait for the messages of some queues; safe for threads."""

    lane = 0

    def __init__(self, client: ClusterClient, queues: Queues) -> None:
        super().__init__()
        self._client = client
        self._queues = queues
        self._armed: tuple[MessageQueue, ...] = ()
        self._polled: dict[MessageQueue, int] = {}
        """The queues whose broker keeps a pull, and the offset that it waits for."""
        self._lock = threading.Lock()

    def arm(self, *queues: MessageQueue) -> int:
        """Let the next message of these queues ring; return :meth:`heard`.

        It asks nothing yet: a wait asks for messages above the end that the queue had when it was read last.
        """
        self._armed = queues
        return self.heard()

    def wait(self, heard: int, timeout_s: float) -> None:
        """Sleep until the bell rings, at most ``timeout_s`` seconds; return at once if it rang since ``heard``."""
        with suppress(QueueError):  # whoever is woken by the time-out reads, and gets the error
            for queue in self._armed:
                self._poll(queue)
        super().wait(heard, timeout_s)

    def _poll(self, queue: MessageQueue) -> None:
        end = self._queues.ends.get(queue)
        with self._lock:
            if end is None or self._polled.get(queue, -1) >= end:
                return
            self._polled[queue] = end
        asked = self._queues.pull(queue, end, 1, wait_ms=_WAIT_MS)
        address = self._client.routes.read_address(queue.broker_name)
        self._client.submit(address, asked, lambda answer: self._answered(queue, end, answer), _TIMEOUT_S)

    def _answered(self, queue: MessageQueue, end: int, answer: Frame | QueueError) -> None:
        """Ring for a message, and let the next wait ask again. Runs on the I/O thread."""
        with self._lock:
            if self._polled.get(queue) == end:
                del self._polled[queue]
        if isinstance(answer, Frame) and answer.code != ResponseCode.PULL_NOT_FOUND:
            self.ring()
