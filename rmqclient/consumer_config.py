"""Settings of a consumer. The unit of a number is in its name; RocketMQ's name and default are in brackets."""

from __future__ import annotations

from dataclasses import dataclass

from rmqclient.store import ACK_WINDOW
from rmqclient.store.numbers import MOST_BYTES, MOST_MS, check_switches, check_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How a consumer takes messages and keeps its queues. The defaults are RocketMQ's.

    Raises TypeError for a setting of another type, and ValueError for one out of its limits, a ``max_span`` beyond the
    acknowledgement bitmap, and a ``lease_ms`` below four times ``liveness_interval_ms``.
    """

    rebalance_interval_ms: int = 20_000
    """Longest time between two rebalances; a change of the group starts one at once. [20 s]"""

    lease_ms: int = 10_000
    """Time without a renewal after which a member counts as stopped, and its queues go to others. Set it well above the
    longest stall of a healthy process."""

    liveness_interval_ms: int = 250
    """Interval between two renewals of the leases, and between two searches for dead members."""

    drain_ms: int = 5_000
    """Longest time that a queue waits for its running messages before it moves to another member."""

    batch_messages: int = 32
    """Most messages taken from a queue at once. [pullBatchSize]"""

    max_messages: int = 1_000
    """Most unfinished messages of one queue. [pullThresholdForQueue]"""

    max_bytes: int = 100 << 20
    """Most bytes of the unfinished messages of one queue. [pullThresholdSizeForQueue]"""

    max_messages_per_topic: int = 0
    """Most unfinished messages of all queues of a topic that this consumer holds: each queue gets an equal part, which
    replaces ``max_messages``. 0 disables this limit. [pullThresholdForTopic]"""

    max_bytes_per_topic: int = 0
    """The same in bytes; it replaces ``max_bytes``. 0 disables this limit. [pullThresholdSizeForTopic]"""

    max_span: int = 2_000
    """Largest distance from the oldest unfinished message to the newest taken one. [consumeConcurrentlyMaxSpan]"""

    flow_control_ms: int = 50
    """Pause of a queue that has reached one of these limits. [PULL_TIME_DELAY_MILLS_WHEN_FLOW_CONTROL]"""

    local_retry_ms: int = 5_000
    """Pause before a failed message is delivered again in place, if it could not be stored for its retry. [5 s]"""

    suspend_ms: int = 1_000
    """Pause of an ordered queue, or of one key, after a failure; 10 ms to 30 s. [suspendCurrentQueueTimeMillis]"""

    message_trace: bool = False
    """Whether RocketMQ's records of each call of a handler go to the topic RMQ_SYS_TRACE_TOPIC; docs/operate/traces.md
    describes them. [enableMsgTrace]"""

    def __post_init__(self) -> None:
        times = [name for name in self.__dataclass_fields__ if name.endswith("_ms")]
        check_whole(self, *times, most=MOST_MS)
        check_whole(self, "batch_messages", "max_messages", "max_span")
        check_whole(self, "max_bytes", most=MOST_BYTES)
        check_whole(self, "max_messages_per_topic", least=0)
        check_whole(self, "max_bytes_per_topic", least=0, most=MOST_BYTES)
        check_switches(self, "message_trace")
        if self.max_span > ACK_WINDOW - 1:
            raise ValueError(f"max_span={self.max_span}: the acknowledgement bitmap allows at most {ACK_WINDOW - 1}")
        if self.lease_ms < 4 * self.liveness_interval_ms:
            raise ValueError(
                f"lease_ms={self.lease_ms}: must be at least four times "
                f"liveness_interval_ms={self.liveness_interval_ms}"
            )
