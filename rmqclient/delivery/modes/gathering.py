"""Gathering: the messages of one queue that wait until there are enough of them for a batch."""

from __future__ import annotations

from weakref import proxy

from rmqclient.delivery.process_queue import FlowControl, ProcessQueue
from rmqclient.message import ReceivedMessage
from rmqclient.store import clock


class Gathering:
    """Makes batches of the messages of one queue; for the thread that takes from the queue."""

    def __init__(self, queue: ProcessQueue, linger_s: float) -> None:
        self._queue = proxy(queue)  # the queue has this
        self._linger_s = linger_s
        self._messages: list[ReceivedMessage] = []
        self._until = 0.0

    @property
    def due(self) -> float | None:
        """When, by `clock.elapsed`, a batch is given that is not full; None when no message waits."""
        return self._until if self._messages else None

    @property
    def held_back(self) -> list[float]:
        """When each of the messages is given, if no others come."""
        return [self._until] * len(self._messages)

    def take(self, size: int) -> list[ReceivedMessage]:
        """Return the next ``size`` messages, or none yet.

        There are fewer when the first one has waited for ``linger_s``, or when a limit of the queue is reached.
        """
        queue = self._queue
        size = min(size, queue.max_messages)
        while len(self._messages) < size and (batch := queue.take_new()):
            if not self._messages:
                self._until = clock.elapsed() + self._linger_s
            self._messages += batch
        is_limited = queue.flow_control not in (FlowControl.NONE, FlowControl.RETRYING, FlowControl.UNSTORED)
        if len(self._messages) < size and not is_limited and clock.elapsed() < self._until:
            return []
        size = self._openable(size) if queue.grant.has_unopened else size
        batch, self._messages = self._messages[:size], self._messages[size:]
        self._until = clock.elapsed() + self._linger_s
        return batch

    def _openable(self, size: int) -> int:
        """Return how many messages come in one call.

        A compressed batch that cannot be opened fails in a call of its own, so that it takes no other messages with it.
        """
        for number, message in enumerate(self._messages[:size]):
            if message.unopened is not None:
                return max(1, number)
        return size
