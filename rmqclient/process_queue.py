"""Process queue: what a consumer has taken from one message queue and not finished.

Which messages are finished is known to the acknowledgement bitmap in the runtime file. Here are counts, for flow
control, and the failed messages that wait for their next attempt.

A queue at a limit is passed over for 50 ms (DefaultMQPushConsumerImpl.pullMessage): 1,000 messages, 100 MiB, or 2,000
between the oldest unfinished message and the newest one taken. RocketMQ looks at a limit before it takes a batch and so
goes beyond it by up to one; here the 1,001st message and the one 2,001 ahead are never taken, and no batch is begun at
100 MiB. Why a queue gives nothing is also written into the runtime file, for others to see.
"""

from __future__ import annotations

import enum
import heapq
import logging
import threading
import time
from collections.abc import Sequence

from rmqclient.consumer_config import ConsumerConfig
from rmqclient.message import ReceivedMessage
from store import MessageQueue, QueueGrant
from store.errors import DiskFailed, LimitReached, StoreBusy, StoreCorrupt, StoreUnusable
from store.group_table import GroupQueueSlot

_log = logging.getLogger(__name__)

_UNREADABLE_PAUSE_MS = 1_000
_LOOK_AT_PAUSE_MS = 1_000
"""Who resumes a queue wakes its owner, unless it is killed before that. [PULL_TIME_DELAY_MILLS_WHEN_SUSPEND]"""


class FlowControl(enum.Enum):
    """Why a queue gives no messages just now. A runtime file has the place in this list: new ones come last."""

    NONE = "none"
    MESSAGES = "flow control: messages"
    BYTES = "flow control: bytes"
    SPAN = "flow control: span"
    UNREADABLE = "a file cannot be read"
    PAUSED = "paused"
    RETRYING = "retrying"
    """Nothing new is there; failed messages wait for their next attempt."""

    @property
    def code(self) -> int:
        """What stands for it in the runtime file."""
        return _FLOW_CONTROLS.index(self)

    @classmethod
    def of_code(cls, code: int) -> FlowControl:
        """Return what a word of the runtime file stands for; NONE for one of another version."""
        return _FLOW_CONTROLS[code] if code < len(_FLOW_CONTROLS) else cls.NONE


_FLOW_CONTROLS = tuple(FlowControl)


class ProcessQueue:
    """One granted queue. Taking is for one thread at a time; finishing for any."""

    def __init__(self, grant: QueueGrant, slot: GroupQueueSlot, config: ConsumerConfig) -> None:
        self.grant = grant
        self.slot = slot
        self.flow_control = FlowControl.NONE
        self.revoked = False
        """Set when the queue goes to somebody else: nothing more is taken, and no message of a batch is begun."""
        self.running = 0
        """Batches of this queue that a thread handles now."""
        self._config = config
        self._max_messages = config.max_messages
        self._max_bytes = config.max_bytes
        self._lock = threading.Lock()
        self._messages = 0
        self._bytes = 0
        self._retries: list[tuple[float, int, ReceivedMessage]] = []
        self._blocked_until = 0.0
        slot.store("flow_control", 0)  # what the last owner met is over

    @property
    def queue(self) -> MessageQueue:
        """The message queue."""
        return self.grant.queue

    @property
    def in_flight(self) -> int:
        """Messages taken and not finished, those that wait for a retry included."""
        return self._messages

    @property
    def is_blocked(self) -> bool:
        """Whether a limit was met and the pause for it is not over."""
        return time.monotonic() < self._blocked_until

    def share_limits(self, queues: int) -> None:
        """Take this queue's part of the limits of its topic, of which its consumer holds ``queues`` queues.

        RebalancePushImpl.messageQueueChanged: at each rebalance, and at least 1 for each queue.
        """
        config = self._config
        if config.max_messages_per_topic:
            self._max_messages = max(1, config.max_messages_per_topic // queues)
        if config.max_bytes_per_topic:
            self._max_bytes = max(1, config.max_bytes_per_topic // queues)

    def take(self) -> list[ReceivedMessage]:
        """Return the next messages to handle; none when there are none, when it is paused, or by flow control."""
        if self.revoked or self._is_paused():
            return []
        if self._retries:
            due = self._take_due()
            if due:
                return due
        if not self.grant.has_more:
            self._show(self._unhindered())
            return []
        if self._blocked_until and self.is_blocked:
            return []
        room = self._room()
        if room <= 0:
            return []
        try:
            batch = self.grant.take(min(room, self._config.batch_messages), self._config.max_span + 1)
        except (StoreCorrupt, StoreUnusable, DiskFailed, LimitReached, StoreBusy) as error:
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
        elif self._spans_too_far():
            self._block(FlowControl.SPAN, self._config.flow_control_ms)
        elif not self.grant.valid:
            self.revoked = True
        return batch

    def settle(self, messages: Sequence[ReceivedMessage]) -> None:
        """Count messages of a batch as finished, or as given up when the queue is revoked."""
        if messages:
            with self._lock:
                self._messages -= len(messages)
                self._bytes -= sum([message.size for message in messages])

    def retry_later(self, message: ReceivedMessage) -> float:
        """Keep a failed message for its next attempt; return the pause in seconds. It stays in flight."""
        exponent = min(message.delivery_attempt - 1, 30)
        pause_ms: int = min(self._config.first_retry_ms * 2**exponent, self._config.longest_retry_ms)
        with self._lock:
            heapq.heappush(self._retries, (time.monotonic() + pause_ms / 1000, message.queue_offset, message.again()))
        if self.flow_control is FlowControl.NONE:
            self._show(FlowControl.RETRYING)
        return pause_ms / 1000

    def next_due(self) -> float | None:
        """Return when, on the monotonic clock, this queue wants to be asked again without a new message."""
        due = [self._blocked_until] if self._blocked_until else []
        with self._lock:
            if self._retries:
                due.append(self._retries[0][0])
        return min(due, default=None)

    def _is_paused(self) -> bool:
        if self.slot.load("paused"):
            self._block(FlowControl.PAUSED, _LOOK_AT_PAUSE_MS)
            return True
        if self.flow_control is FlowControl.PAUSED:
            self._blocked_until = 0.0
            self._show(self._unhindered())
        return False

    def _report_expired(self) -> None:
        _log.error(
            "queue %d of %s: %d messages were removed by retention before they were taken; going on at offset %d",
            self.queue.queue_id, self.queue.topic, self.grant.expired, self.grant.committed_offset,
        )  # fmt: skip
        self.grant.expired = 0

    def _take_due(self) -> list[ReceivedMessage]:
        now = time.monotonic()
        due: list[ReceivedMessage] = []
        with self._lock:
            while self._retries and self._retries[0][0] <= now and len(due) < self._config.batch_messages:
                due.append(heapq.heappop(self._retries)[2])
        return due

    def _room(self) -> int:
        """Return how many messages may be taken; 0 sets the reason."""
        if self._bytes >= self._max_bytes:
            self._block(FlowControl.BYTES, self._config.flow_control_ms)
            return 0
        if self._messages >= self._max_messages:
            self._block(FlowControl.MESSAGES, self._config.flow_control_ms)
            return 0
        self._show(self._unhindered())
        return self._max_messages - self._messages

    def _spans_too_far(self) -> bool:
        next_offset = self.grant.next_offset
        return next_offset > self.grant.committed_offset + self._config.max_span and next_offset < self.grant.max_offset

    def _block(self, reason: FlowControl, pause_ms: int) -> None:
        self._show(reason)
        self._blocked_until = time.monotonic() + pause_ms / 1000

    def _unhindered(self) -> FlowControl:
        return FlowControl.RETRYING if self._retries else FlowControl.NONE

    def _show(self, state: FlowControl) -> None:
        """Let others see why this queue gives nothing; one word, which only the owner writes and nobody relies on."""
        if state is not self.flow_control:
            self.flow_control = state
            self.slot.store("flow_control", state.code)
