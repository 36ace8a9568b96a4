"""Process queue: what a consumer has taken from one message queue and not finished.

Which messages are finished is known to the acknowledgement bitmap in the runtime file. Here are counts, for flow
control, and the messages that are to run alone: those that were running when a process died, and those that failed
and could not be stored for their retry.

A queue at a limit is passed over for 50 ms (DefaultMQPushConsumerImpl.pullMessage): 1,000 messages, 100 MiB, or 2,000
between the oldest unfinished message and the newest one taken. RocketMQ looks at a limit before it takes a batch and so
goes beyond it by up to one; here the 1,001st message and the one 2,001 ahead are never taken, and no batch is begun at
100 MiB. Messages that were sent as one compressed batch count one by one and come together, so they can go beyond.
Why a queue gives nothing is also written into the runtime file, for others to see.
"""

from __future__ import annotations

import enum
import heapq
import itertools
import logging
import threading
import time
from collections.abc import Mapping, Sequence

from rmqclient.consumer_config import ConsumerConfig
from rmqclient.message import ReceivedMessage
from rmqclient.names import RETRY_PREFIX
from rmqclient.store import Interrupted, MessageQueue, QueueGrant, boottime
from rmqclient.store.errors import DiskFailed, LimitReached, StoreBusy, StoreCorrupt, StoreUnusable
from rmqclient.store.runtime.group_table import GroupQueueSlot

_log = logging.getLogger(__name__)

_UNREADABLE_PAUSE_MS = 1_000

_LEASE_PAUSE_S = 0.01
"""How long a queue whose lease has run out gives nothing, before it is looked at again."""
_LOOK_AT_PAUSE_MS = 1_000
"""Who resumes a queue wakes its owner, unless it is killed before that. [PULL_TIME_DELAY_MILLS_WHEN_SUSPEND]"""


class FlowControl(enum.Enum):
    """Why a queue gives no messages just now. A runtime file has the place in this list: new ones come last."""

    NONE = "none"
    MESSAGES = "flow control: messages"
    BYTES = "flow control: bytes"
    SPAN = "flow control: span"
    UNREADABLE = "a file cannot be read"
    SUSPENDED = "suspended: a message failed"
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

    def __init__(
        self,
        grant: QueueGrant,
        slot: GroupQueueSlot,
        config: ConsumerConfig,
        interrupted: Mapping[int, Sequence[Interrupted]] | None = None,
        *,
        keeps_order: bool = False,
    ) -> None:
        self.grant = grant
        self.interrupted = dict(interrupted or {})
        """By queue offset, the messages that processes died with before this grant; the last death last."""
        self.slot = slot
        self.flow_control = FlowControl.NONE
        self.has_unopened = False
        """Whether a compressed batch was met that cannot be opened: it is then a message that failed."""
        self.revoked = False
        """Set when the queue goes to somebody else: nothing more is taken, and no message of a batch is begun."""
        self.running = 0
        """Batches of this queue that a thread handles now."""
        self._config = config
        self._keeps_order = keeps_order
        self._max_messages = config.max_messages
        self._max_bytes = config.max_bytes
        self._lock = threading.Lock()
        self._messages = 0
        self._bytes = 0
        self._alone: list[tuple[float, int, int, ReceivedMessage]] = []
        self._count = itertools.count()
        self._blocked_until = 0.0
        self.claimed = False
        """A thread has the whole queue, whose order is kept: nobody else takes until it is done."""
        self._suspended: list[ReceivedMessage] = []
        self._suspended_until = 0.0
        self._gathered: list[ReceivedMessage] = []
        self._gather_until = 0.0
        slot.store("flow_control", 0)  # what the last owner met is over

    @property
    def queue(self) -> MessageQueue:
        """The message queue."""
        return self.grant.queue

    @property
    def is_retry(self) -> bool:
        """Whether it is the queue of a retry topic, which holds messages of all the group's topics."""
        return self.queue.topic.startswith(RETRY_PREFIX)

    @property
    def in_flight(self) -> int:
        """Messages taken and not finished, those that wait for a retry included."""
        return self._messages

    @property
    def is_blocked(self) -> bool:
        """Whether somebody has the queue to himself, or the pause after a limit or a failed message is not over."""
        return self.claimed or time.monotonic() < max(self._blocked_until, self._suspended_until)

    @property
    def lease_is_over(self) -> bool:
        """Whether the lease has run out, because this process stood still, and was not renewed as yet.

        The queue may be granted to another member at any moment, so what would be begun now might be delivered twice.
        """
        return 0 < self.slot.load("lease_until") < boottime()

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
        """Return the next messages to handle, in order; none without any, when it is paused, or by flow control.

        A message that is to run alone comes as a batch of one.
        """
        if self.revoked or self._is_paused():
            return []
        if self._alone and (due := self._take_due()):
            return due
        return self._take_new() or self._take_due()

    def _take_new(self) -> list[ReceivedMessage]:
        if not self.grant.has_more:
            self._show(self._unhindered())
            return []
        if self._blocked_until and time.monotonic() < self._blocked_until:
            return []
        if self.lease_is_over:
            self._blocked_until = time.monotonic() + _LEASE_PAUSE_S
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
            self.has_unopened = self.has_unopened or self.grant.has_unopened
            if self.interrupted:
                return self._without_interrupted(batch)
        elif self._spans_too_far():
            self._block(FlowControl.SPAN, self._config.flow_control_ms)
        elif not self.grant.valid:
            self.revoked = True
        return batch

    def take_one(self) -> list[ReceivedMessage]:
        """Return the next message, in a list of its own, or an empty one."""
        return self.gather(1, 0.0)

    def gather(self, size: int, linger_s: float) -> list[ReceivedMessage]:
        """Return the next ``size`` messages; fewer when so much time has passed since the first one, or at a limit.

        A message that is to run alone comes as a batch of one.
        """
        if self.revoked or self._is_paused():
            return []
        if self._alone and (due := self._take_due()):
            return due
        size = min(size, self._max_messages)
        while len(self._gathered) < size and (batch := self._take_new()):
            if not self._gathered:
                self._gather_until = time.monotonic() + linger_s
            self._gathered += batch
        is_limited = self.flow_control not in (FlowControl.NONE, FlowControl.RETRYING)
        is_due = is_limited or time.monotonic() >= self._gather_until
        if len(self._gathered) < size and not is_due:
            return []
        size = self._run(size) if self.has_unopened else size
        batch, self._gathered = self._gathered[:size], self._gathered[size:]
        self._gather_until = time.monotonic() + linger_s
        return batch

    def _run(self, size: int) -> int:
        """Return how many come in one call: a batch that cannot be opened fails, and takes no others with it."""
        for number, message in enumerate(self._gathered[:size]):
            if message.unopened is not None:
                return max(1, number)
        return size

    def suspend(self, messages: list[ReceivedMessage], pause_s: float) -> None:
        """Keep the messages of an ordered queue, the failed one first, and give none for a while."""
        self._suspended = messages
        self._suspended_until = time.monotonic() + pause_s
        self._show(FlowControl.SUSPENDED)

    def resume(self) -> list[ReceivedMessage]:
        """Return the messages that were kept; take none from a queue whose :attr:`is_blocked` is true."""
        messages, self._suspended = self._suspended, []
        if messages and not self.revoked:
            self._suspended_until = 0.0
            self._show(self._unhindered())
            return messages
        return []

    def settle(self, messages: Sequence[ReceivedMessage]) -> None:
        """Count messages of a batch as finished, or as given up when the queue is revoked."""
        if messages:
            self.count_finished(len(messages), sum([message.size for message in messages]))

    def count_finished(self, messages: int, size: int) -> None:
        """Count so many messages, of so many bytes, as finished."""
        with self._lock:
            self._messages -= messages
            self._bytes -= size

    def retry_later(self, message: ReceivedMessage) -> float:
        """Keep a failed message for its next attempt in place; return the pause in seconds. It stays in flight."""
        pause_s = self._config.local_retry_ms / 1000
        self._keep_alone(message, time.monotonic() + pause_s)
        if self.flow_control is FlowControl.NONE:
            self._show(FlowControl.RETRYING)
        return pause_s

    def next_due(self) -> float | None:
        """Return when, on the monotonic clock, this queue wants to be asked again without a new message."""
        if self.revoked:
            return None
        due = [self._blocked_until] if self._blocked_until else []
        if self._suspended:
            due.append(self._suspended_until)
        if self._gathered:
            due.append(self._gather_until)
        with self._lock:
            if self._alone:
                due.append(self._alone[0][0])
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
        with self._lock:
            if self._alone and self._alone[0][0] <= time.monotonic():
                return [heapq.heappop(self._alone)[-1]]
        return []

    def _keep_alone(self, message: ReceivedMessage, due: float) -> None:
        with self._lock:
            heapq.heappush(self._alone, (due, message.queue_offset, next(self._count), message))

    def _without_interrupted(self, batch: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Give messages that a process died with their true attempt; set them aside, unless an order is kept."""
        others = []
        for message in batch:
            told = self.interrupted.get(message.queue_offset)
            if told is None:
                others.append(message)
                continue
            again = message.again(message.reconsume_times + told[-1].begun + 1)
            if self._keeps_order:
                others.append(again)
            else:
                self._keep_alone(again, 0.0)
        return others

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
        return FlowControl.RETRYING if self._alone else FlowControl.NONE

    def _show(self, state: FlowControl) -> None:
        """Let others see why this queue gives nothing; one word, which only the owner writes and nobody relies on."""
        if state is not self.flow_control:
            self.flow_control = state
            self.slot.store("flow_control", state.code)
