"""Process queue: what a consumer has taken from one message queue and not finished.

The acknowledgement bitmap in the runtime file records which messages are finished. A process queue only counts the
messages in flight, for flow control. Each of :mod:`rmqclient.delivery.modes` adds the messages that it holds back.

A queue at a limit is passed over for 50 ms (DefaultMQPushConsumerImpl.pullMessage). The limits are 1,000 messages,
100 MiB, and a distance of 2,000 between the oldest unfinished message and the newest one taken. RocketMQ looks at a
limit before it takes a batch and so exceeds it by up to one batch. Here the 1,001st message and the one 2,001 ahead are
never taken, and no batch is begun at 100 MiB. Messages that were sent as one compressed batch count one by one and come
together, so they can exceed a limit. The runtime file shows why a queue gives nothing.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Mapping, Sequence

from rmqclient.backend.group_protocols import Death, Grant, Lent
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.handler import Batch
from rmqclient.message import ReceivedMessage
from rmqclient.names import RETRY_PREFIX
from rmqclient.store import MessageQueue, clock
from rmqclient.store.errors import DiskFailed, LimitReached, StoreBusy, StoreCorrupt, StoreUnusable
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_UNREADABLE_PAUSE_MS = 1_000

_LEASE_PAUSE_S = 0.01
"""How long a queue whose lease has run out gives nothing, before it is looked at again."""
_LOOK_AT_PAUSE_MS = 1_000
"""`resume` wakes the owner; if the resumer dies first, the owner notices within this time.
[PULL_TIME_DELAY_MILLS_WHEN_SUSPEND]"""


class FlowControl(enum.Enum):
    """Why a queue gives no messages just now.

    The runtime file holds the position in this list, so a new member goes at the end.
    """

    NONE = "none"
    MESSAGES = "flow control: messages"
    BYTES = "flow control: bytes"
    SPAN = "flow control: span"
    UNREADABLE = "a file cannot be read"
    SUSPENDED = "suspended: a message failed"
    PAUSED = "paused"
    RETRYING = "retrying"
    """There is no new message; failed messages wait for their next attempt."""
    UNSTORED = "a retry cannot be stored"
    """A failed message stays here, and is tried again in place."""

    @property
    def code(self) -> int:
        """Its number in the runtime file."""
        return _FLOW_CONTROLS.index(self)

    @classmethod
    def of_code(cls, code: int) -> FlowControl:
        """Return the member with this number; NONE for a number that only another version knows."""
        return _FLOW_CONTROLS[code] if code < len(_FLOW_CONTROLS) else cls.NONE


_FLOW_CONTROLS = tuple(FlowControl)


class ProcessQueue:
    """One granted queue. One thread at a time takes; any thread finishes messages."""

    def __init__(
        self,
        grant: Grant,
        config: ConsumerConfig,
        deaths: Mapping[int, Sequence[Death]] | None = None,
        batch: Batch | None = None,
    ) -> None:
        self.grant = grant
        self.batch = batch
        """How many messages come in one call, and how long they wait for each other; None for one message."""
        self.deaths = dict(deaths or {})
        """By queue offset, the deaths of processes that handled a message before this grant, the last one last."""
        self.lent: Lent | None = None
        """Messages that ran in members that had the queue before; only in a queue without an order."""
        self.is_retry = self.queue.topic.startswith(RETRY_PREFIX)
        """Whether it is the queue of a retry topic, which holds messages of all topics of the group."""
        self.is_mixed = self.is_retry or bool(self.deaths)
        """Whether a batch may have messages that the handler must not get: messages of other topics, messages that
        ended a process, and compressed batches that cannot be opened."""
        self.flow_control = FlowControl.NONE
        self.revoked = False
        """Set when the queue goes to another member: nothing more is taken, and no message of a batch is begun."""
        self.running = 0
        """Batches of this queue that a thread handles now."""
        self.max_messages = config.max_messages
        """Messages in flight at most."""
        self._max_bytes = config.max_bytes
        self._config = config
        self._lock = threading.Lock()
        self._messages = 0
        self._bytes = 0
        self._blocked_until = 0.0
        grant.show(FlowControl.NONE.code)  # the state of the last owner is over

    @property
    def queue(self) -> MessageQueue:
        """The message queue."""
        return self.grant.queue

    @property
    def in_flight(self) -> int:
        """Messages taken and not finished, those that wait for a retry included."""
        return self._messages

    @property
    def has_waiting(self) -> bool:
        """Whether messages of the queue could begin if a thread were free."""
        return self.grant.has_more

    @property
    def is_blocked(self) -> bool:
        """Whether the queue gives nothing before :meth:`next_due`, even if a message comes."""
        return clock.elapsed() < self._blocked_until

    def share_limits(self, queues: int) -> None:
        """Take this queue's part of the limits of its topic, of which its consumer holds ``queues`` queues.

        Each queue gets an equal part, and at least 1 (RebalancePushImpl.messageQueueChanged, at each rebalance).
        """
        config = self._config
        if config.max_messages_per_topic:
            self.max_messages = max(1, config.max_messages_per_topic // queues)
        if config.max_bytes_per_topic:
            self._max_bytes = max(1, config.max_bytes_per_topic // queues)

    def take(self) -> list[ReceivedMessage]:
        """Return the next batch to handle; empty when there is none, and while the queue is paused or at a limit."""
        if self.revoked or self.is_paused():
            return []
        return self.take_new()

    def take_new(self) -> list[ReceivedMessage]:
        """Return messages that were not taken before, in order, as far as the limits allow. Empty if there are none."""
        if not self.grant.has_more:
            self.show(self.unhindered)
            return []
        if self._blocked_until and clock.elapsed() < self._blocked_until:
            return []
        if self.grant.lease_is_over:  # this process stood still: another member may get the queue at any moment
            self._blocked_until = clock.elapsed() + _LEASE_PAUSE_S
            return []
        room = self._room()
        if room <= 0:
            return []
        try:
            batch = self.grant.take(min(room, self._config.batch_messages), self._config.max_span + 1)
        except (StoreCorrupt, StoreUnusable, DiskFailed, LimitReached, StoreBusy, MemoryError) as error:
            _log.error("queue %d of %s cannot be read, trying again: %s", self.queue.queue_id, self.queue.topic, error)
            self._block(FlowControl.UNREADABLE, _UNREADABLE_PAUSE_MS)
            return []
        if self.grant.expired:
            self._report_expired()
        if batch:
            self._blocked_until = 0.0
            with self._lock:
                self._messages += len(batch)
                self._bytes += sum([message.size for message in batch])
            self.is_mixed = self.is_mixed or self.grant.has_unopened
            if self.deaths or self.lent is not None:
                return self.redelivered(batch)
        elif self._spans_too_far():
            self._block(FlowControl.SPAN, self._config.flow_control_ms)
        elif not self.grant.valid:
            self.revoked = True
        return batch

    def redelivered(self, batch: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Return a batch whose messages count the deaths of the processes that handled them as attempts."""
        return [self.with_deaths(message) for message in batch]

    def pass_over(self, lent: Lent | None) -> None:
        """Do not deliver messages that run in members that had the queue before. A queue with an order has none."""

    def look_at_lent(self, deaths: Callable[[], Mapping[int, Sequence[Death]]]) -> bool:
        """Deliver those of them that run nowhere any more; tell whether there are any."""
        del deaths
        return False

    def with_deaths(self, message: ReceivedMessage) -> ReceivedMessage:
        """Return the message with its true attempt; the same object when no process died with it."""
        deaths = self.deaths.get(message.queue_offset)
        return message if deaths is None else message.redelivered(message.reconsume_times + deaths[-1].begun + 1)

    def enter(self) -> None:
        """Count a batch as running, before the look at :attr:`revoked`: the queue is not released while one runs."""
        with self._lock:
            self.running += 1

    def leave(self, finished: Sequence[ReceivedMessage] = ()) -> None:
        """Count a batch as not running any more, and these messages of it as finished."""
        size = sum([message.size for message in finished])
        with self._lock:
            self.running -= 1
            self._messages -= len(finished)
            self._bytes -= size

    def settle(self, messages: Sequence[ReceivedMessage]) -> None:
        """Count messages as finished, or as given up when the queue is revoked."""
        self.count_finished(len(messages), sum([message.size for message in messages]))

    def count_finished(self, messages: int, size: int) -> None:
        """Count so many messages, of ``size`` bytes altogether, as finished."""
        with self._lock:
            self._messages -= messages
            self._bytes -= size

    def next_due(self) -> float | None:
        """Return when, by `clock.elapsed`, to ask this queue again even if no message comes; None for never."""
        return None if self.revoked else min(self.due_times(), default=None)

    def due_times(self) -> list[float]:
        """Return the times of `clock.elapsed` at which the queue may have something to give."""
        return [self._blocked_until] if self._blocked_until else []

    def held_back(self) -> list[float]:
        """Return times of `clock.elapsed`, one for each message that was taken and that no thread has until then."""
        return []

    def is_idle(self) -> bool:
        """Tell whether no thread has a message of this queue, and none can be taken just now."""
        waiting, now = self.held_back(), clock.elapsed()
        if self.running or self._messages != len(waiting):
            return False
        if self.revoked or self.grant.paused:
            return True
        return all(due > now for due in waiting) and (self.is_blocked or not self.grant.has_more)

    def is_paused(self) -> bool:
        """Tell whether the group is paused for this queue, and show it."""
        if self.grant.paused:
            self._block(FlowControl.PAUSED, _LOOK_AT_PAUSE_MS)
            return True
        if self.flow_control is FlowControl.PAUSED:
            self._blocked_until = 0.0
            self.show(self.unhindered)
        return False

    @property
    def unhindered(self) -> FlowControl:
        """The state of the queue when no limit and no pause holds it."""
        return FlowControl.NONE

    def show(self, state: FlowControl) -> None:
        """Let others see why this queue gives nothing. Only the owner writes this word, and nobody relies on it."""
        if state is not self.flow_control:
            self.flow_control = state
            self.grant.show(state.code)

    def _report_expired(self) -> None:
        _log.error(
            "queue %d of %s: %d messages were removed by retention before they were taken; going on at offset %d",
            self.queue.queue_id, self.queue.topic, self.grant.expired, self.grant.committed_offset,
        )  # fmt: skip
        self.grant.expired = 0

    def _room(self) -> int:
        """Return how many messages may be taken; shows the limit when there is no room."""
        if self._bytes >= self._max_bytes:
            self._block(FlowControl.BYTES, self._config.flow_control_ms)
            return 0
        if self._messages >= self.max_messages:
            self._block(FlowControl.MESSAGES, self._config.flow_control_ms)
            return 0
        self.show(self.unhindered)
        return self.max_messages - self._messages

    def _spans_too_far(self) -> bool:
        next_offset = self.grant.next_offset
        return next_offset > self.grant.committed_offset + self._config.max_span and next_offset < self.grant.max_offset

    def _block(self, reason: FlowControl, pause_ms: int) -> None:
        self.show(reason)
        self._blocked_until = clock.elapsed() + pause_ms / 1000
