"""Settings of a consumer. The unit of a number is in its name; RocketMQ's name and default are in brackets."""

from __future__ import annotations

from dataclasses import dataclass

from rmqclient.store import ACK_WINDOW

_MAY_BE_OFF = {"max_messages_per_topic", "max_bytes_per_topic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How a consumer takes messages and keeps its queues; the defaults are RocketMQ's."""

    rebalance_interval_ms: int = 20_000
    """Longest time between two looks at who has which queue; a change is seen at once. [20 s]"""

    lease_ms: int = 10_000
    """A member that does not renew for so long is taken for stopped, and its queues go to others. Well above the
    longest stall of a healthy process."""

    liveness_interval_ms: int = 250
    """How often leases are renewed and dead members are looked for."""

    drain_ms: int = 5_000
    """How long a queue that moves to another member waits for its running messages."""

    batch_messages: int = 32
    """Messages taken at once from a queue. [pullBatchSize]"""

    max_messages: int = 1_000
    """Unfinished messages of one queue. [pullThresholdForQueue]"""

    max_bytes: int = 100 << 20
    """Bytes of the unfinished messages of one queue. [pullThresholdSizeForQueue]"""

    max_messages_per_topic: int = 0
    """The same for all queues of a topic that this consumer holds: each gets an equal part, in the place of
    ``max_messages``. 0 for no such limit. [pullThresholdForTopic]"""

    max_bytes_per_topic: int = 0
    """The same in bytes, in the place of ``max_bytes``. 0 for no such limit. [pullThresholdSizeForTopic]"""

    max_span: int = 2_000
    """Distance from the oldest unfinished to the newest taken message. [consumeConcurrentlyMaxSpan]"""

    flow_control_ms: int = 50
    """Pause of a queue that is at one of these limits. [PULL_TIME_DELAY_MILLS_WHEN_FLOW_CONTROL]"""

    local_retry_ms: int = 5_000
    """Pause before a failed message is delivered again in place, because it could not be stored for its retry. [5 s]"""

    suspend_ms: int = 1_000
    """Pause of an ordered queue, or of one key, whose message failed; 10 ms to 30 s. [suspendCurrentQueueTimeMillis]"""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            least = 0 if name in _MAY_BE_OFF else 1
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least {least}")
        if self.max_span > ACK_WINDOW - 1:
            raise ValueError(f"max_span={self.max_span}: the acknowledgement bitmap allows at most {ACK_WINDOW - 1}")
        if self.lease_ms < 4 * self.liveness_interval_ms:
            raise ValueError(
                f"lease_ms={self.lease_ms}: must be at least four times "
                f"liveness_interval_ms={self.liveness_interval_ms}"
            )
