"""Arrival bell: rings when a message comes to one of some queues of a cluster.

While a thread waits, each queue has a long poll, which its broker holds until a message comes. The answer rings the
bell and is dropped: the woken thread reads the queue itself.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from rmqclient.backend.bells import ThreadBell
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.reading.reader import Reader
from rmqclient.errors import QueueError
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue

_WAIT_MS: Final = 10_000
_TIMEOUT_S: Final = 20.0


class ArrivalBell(ThreadBell):
    """Wakes threads that wait for messages of some queues. Safe for threads.

    ``ends`` has the max offset of each queue at its last read.
    """

    lane = 0

    def __init__(self, client: ClusterClient, reader: Reader, ends: Mapping[MessageQueue, int]) -> None:
        super().__init__()
        self._client = client
        self._reader = reader
        self._ends = ends
        self._armed: tuple[MessageQueue, ...] = ()
        self._polled: dict[MessageQueue, int] = {}
        """Queue with a long poll under way → the offset of the poll."""
        self._lock = threading.Lock()

    def arm(self, *queues: MessageQueue) -> int:
        """Let the next message of these queues ring; return :meth:`heard`.

        It sends nothing: :meth:`wait` polls from the end of each queue at its last read.
        """
        self._armed = queues
        return self.heard()

    def wait(self, heard: int, timeout_s: float) -> None:
        """Sleep until the bell rings, at most ``timeout_s`` seconds; return at once if it rang since ``heard``."""
        with suppress(QueueError):  # the read after the time-out will raise the error
            for queue in self._armed:
                self._poll(queue)
        super().wait(heard, timeout_s)

    def _poll(self, queue: MessageQueue) -> None:
        end = self._ends.get(queue)
        with self._lock:
            if end is None or self._polled.get(queue, -1) >= end:
                return
            self._polled[queue] = end
        asked = self._reader.pull(queue, end, 1, wait_ms=_WAIT_MS)
        address = self._client.brokers.read_address(queue.broker_name)
        self._client.submit(address, asked, lambda answer: self._answered(queue, end, answer), _TIMEOUT_S)

    def _answered(self, queue: MessageQueue, end: int, answer: Frame | QueueError) -> None:
        """Ring for a message, and let the next wait poll again. Runs on the I/O thread."""
        with self._lock:
            if self._polled.get(queue) == end:
                del self._polled[queue]
        if isinstance(answer, Frame) and answer.code != ResponseCode.PULL_NOT_FOUND:
            self.ring()
