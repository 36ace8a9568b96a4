"""Concurrent queue: a process queue whose order is not kept, so that single messages can be set aside.

Two kinds of messages are set aside, and then run alone: a message that was running when its process died, because it
may have killed the process, and a message that failed and could not be stored for its retry. A third kind is kept in
flight: a message that still runs in a member that had the queue before. It is set aside if that member dies with it, or
gives it up.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from rmqclient.backend.group_protocols import Death, Grant, Lent
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
        self._were_lent: frozenset[int] = frozenset()
        """Queue offsets of the messages that ran elsewhere when the queue was granted."""
        self._left: frozenset[int] = frozenset()
        """Those that still do."""
        self._lent: dict[int, list[ReceivedMessage]] = {}
        """What was taken of them, by queue offset."""

    @property
    def has_waiting(self) -> bool:
        """Whether messages of the queue could begin if a thread were free, those that were set aside included."""
        with self._lock:
            is_due = bool(self._alone) and self._alone[0][0] <= clock.elapsed()
        return is_due or super().has_waiting

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

    def pass_over(self, lent: Lent | None) -> None:
        """Do not deliver messages that run in members that had the queue before. Before the first take."""
        if lent is not None and (left := lent.offsets()):
            self.lent, self._were_lent, self._left = lent, left, left

    def look_at_lent(self, deaths: Callable[[], Mapping[int, Sequence[Death]]]) -> bool:
        """Deliver lent messages that run nowhere any more and are not acknowledged; tell whether some were taken back.

        ``deaths`` returns those of the members that ran messages of the queue. Raises StoreBusy.
        """
        lent = self.lent
        if lent is None or not self._left or (left := lent.look()) == self._left:
            return False
        died = deaths()
        self.deaths.update({offset: died[offset] for offset in self._left - left if offset in died})
        self.is_mixed = self.is_mixed or bool(self.deaths)
        with self._lock:  # from here on the thread that takes delivers them, with their deaths
            self._left = left
            back = [self._lent.pop(offset) for offset in self._lent.keys() - left]
        messages = [message for messages in back for message in messages if not self._is_finished(lent, message)]
        for message in messages:
            self._set_aside(self.with_deaths(message), 0.0)
        return bool(messages)

    def _is_left(self, lent: Lent, message: ReceivedMessage) -> bool:
        """Keep a message that runs elsewhere; tell whether it does, or has been finished there."""
        with self._lock:
            if message.queue_offset in self._left:
                self._lent.setdefault(message.queue_offset, []).append(message)
                return True
        return self._is_finished(lent, message)

    def _is_finished(self, lent: Lent, message: ReceivedMessage) -> bool:
        """Tell whether a message was finished elsewhere since it was taken, and account for it then."""
        if not lent.is_finished(message.queue_offset):
            if message.inner_number >= lent.first_unfinished(message.queue_offset):
                return False
            self.grant.finish([message])  # one of a compressed batch, whose other messages are to run
        self.settle([message])
        return True

    def redelivered(self, batch: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Set the messages that a process died with aside, with their true attempt; return the others that run here."""
        others = []
        lent = self.lent
        for message in batch:
            if lent is not None and message.queue_offset in self._were_lent and self._is_left(lent, message):
                continue
            redelivered = self.with_deaths(message)
            if redelivered is message:
                others.append(message)
            else:
                self._set_aside(redelivered, 0.0)
        if not self._left and self.grant.next_offset > max(self._were_lent, default=0):
            self.lent = None  # all that were lent have come by
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
        """Return when each message comes that was set aside; of one that runs elsewhere, nobody knows."""
        with self._lock:
            return [due for due, *_ in self._alone] + [math.inf] * sum(map(len, self._lent.values()))

    @property
    def unhindered(self) -> FlowControl:
        """The state of the queue when no limit and no pause holds it."""
        if not self._alone:
            return FlowControl.NONE
        with self._lock:
            return FlowControl.UNSTORED if any(due for due, *_ in self._alone) else FlowControl.RETRYING

    def _set_aside(self, message: ReceivedMessage, due: float) -> None:
        with self._lock:
            heapq.heappush(self._alone, (due, message.queue_offset, next(self._count), message))
