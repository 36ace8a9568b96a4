"""Concurrent queue: a process queue whose order is not kept, so that single messages can be set aside.

Two kinds of messages are set aside, and then run alone: a message that was running when its process died, because it
may have killed the process, and a message that failed and could not be stored for its retry.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence

from rmqclient.backend.group_protocols import Death, Grant
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.delivery.process_queue import FlowControl, ProcessQueue
from rmqclient.handler import Batch
from rmqclient.message import ReceivedMessage
from rmqclient.store import clock


class ConcurrentQueue(ProcessQueue):
    """One granted queue, and the messages of it that were set aside."""

    def __init__(
        self,
        grant: Grant,
        config: ConsumerConfig,
        deaths: Mapping[int, Sequence[Death]] | None = None,
        batch: Batch | None = None,
    ) -> None:
        super().__init__(grant, config, deaths, batch)
        self._alone: list[tuple[float, int, int, ReceivedMessage]] = []
        self._count = itertools.count()
        self._retry_pause_s = config.local_retry_ms / 1000

    def take(self) -> list[ReceivedMessage]:
        """Return the next batch, as the base class; a message that runs alone comes as a batch of one."""
        if self.revoked or self.is_paused():
            return []
        if self._alone and (due := self.take_due()):
            return due
        return self.take_new() or self.take_due()  # messages that are new may be set aside, too

    def take_due(self) -> list[ReceivedMessage]:
        """Return one message that was set aside and is due, in a list of its own; empty if there is none."""
        with self._lock:
            if self._alone and self._alone[0][0] <= clock.elapsed():
                return [heapq.heappop(self._alone)[-1]]
        return []

    def redelivered(self, batch: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Set the messages that a process died with aside, with their true attempt; return the others."""
        others = []
        for message in batch:
            redelivered = self.with_deaths(message)
            if redelivered is message:
                others.append(message)
            else:
                self._set_aside(redelivered, 0.0)
        return others

    def retry_later(self, message: ReceivedMessage) -> None:
        """Keep a failed message in flight for its next attempt in place."""
        self._set_aside(message, clock.elapsed() + self._retry_pause_s)
        if self.flow_control in (FlowControl.NONE, FlowControl.RETRYING):
            self.show(FlowControl.UNSTORED)

    def due_times(self) -> list[float]:
        """Return when the queue may have something to give, the messages that were set aside included."""
        times = super().due_times()
        with self._lock:
            if self._alone:
                times.append(self._alone[0][0])
        return times

    def held_back(self) -> list[float]:
        """Return when each message comes that was set aside."""
        with self._lock:
            return [due for due, *_ in self._alone]

    @property
    def unhindered(self) -> FlowControl:
        """The state of the queue when no limit and no pause holds it."""
        if not self._alone:
            return FlowControl.NONE
        return FlowControl.UNSTORED if any(self.held_back()) else FlowControl.RETRYING

    def _set_aside(self, message: ReceivedMessage, due: float) -> None:
        with self._lock:
            heapq.heappush(self._alone, (due, message.queue_offset, next(self._count), message))
