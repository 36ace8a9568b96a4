"""Statistics: how far topics and groups are, and how much a broker does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from rmqclient.remoting.bodies.body import Body
from rmqclient.remoting.bodies.heartbeat import Subscription
from rmqclient.store import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueRange(Body):
    """The messages of a queue: the first offset, the one behind the last, when the last came. [TopicOffset]"""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0
    """ms since 1970; 0 for an empty queue."""


@dataclass(frozen=True, slots=True)
class TopicStats(Body):
    """The queues of a topic at one broker: the answer to request 202. [TopicStatsTable]"""

    queues: Annotated[dict[MessageQueue, QueueRange], "offsetTable"] = field(default_factory=dict)
    put_tps: Annotated[float | None, "topicPutTps"] = None
    """Messages per second that come in; of 5.x brokers."""


@dataclass(frozen=True, slots=True)
class QueueProgress(Body):
    """How far a group is in a queue. [OffsetWrapper]"""

    broker_offset: int = 0
    """The end of the queue."""
    consumer_offset: int = 0
    """The next message that the group has not finished; -1 without one."""
    last_timestamp: int = 0
    """When the last finished message was stored, in ms since 1970."""
    pull_offset: int | None = None
    """How far the group has pulled; of 5.x brokers."""


@dataclass(frozen=True, slots=True)
class ConsumeStats(Body):
    """How far a group is at one broker: the answer to request 208. [ConsumeStats]"""

    queues: Annotated[dict[MessageQueue, QueueProgress], "offsetTable"] = field(default_factory=dict)
    consume_tps: float = 0.0


@dataclass(frozen=True, slots=True)
class ConsumeStatsList(Body):
    """How far all groups of a broker are, with an entry for each topic: the answer to 317. [ConsumeStatsList]"""

    stats: Annotated[tuple[dict[str, tuple[ConsumeStats, ...]], ...], "consumeStatsList"] = ()
    """One dict for each group, with its name as the only key."""
    broker_address: Annotated[str | None, "brokerAddr"] = None
    total_diff: int = 0
    total_inflight_diff: int | None = None


@dataclass(frozen=True, slots=True)
class QueueTimeSpan(Body):
    """Times of a queue's messages, and of the next one for a group, in ms since 1970. [QueueTimeSpan]

    The texts are the same times as dates of the broker's time zone, for people.
    """

    queue: Annotated[MessageQueue, "messageQueue"]
    min_timestamp: Annotated[int, "minTimeStamp"] = 0
    max_timestamp: Annotated[int, "maxTimeStamp"] = 0
    consume_timestamp: Annotated[int, "consumeTimeStamp"] = 0
    delay_ms: Annotated[int, "delayTime"] = 0
    """How long ago the next message was stored; the time in ms since 1970 when there is none."""
    min_text: Annotated[str | None, "minTimeStampStr"] = None
    max_text: Annotated[str | None, "maxTimeStampStr"] = None
    consume_text: Annotated[str | None, "consumeTimeStampStr"] = None


@dataclass(frozen=True, slots=True)
class ConsumeTimeSpans(Body):
    """The answer to request 303. [QueryConsumeTimeSpanBody]"""

    spans: Annotated[tuple[QueueTimeSpan, ...], "consumeTimeSpanSet"] = ()


@dataclass(frozen=True, slots=True)
class StatsItem(Body):
    """A number that a broker counts, over some time. [BrokerStatsItem]"""

    sum: int = 0
    per_second: Annotated[float, "tps"] = 0.0
    per_call: Annotated[float, "avgpt"] = 0.0


@dataclass(frozen=True, slots=True)
class BrokerStats(Body):
    """A number over the last minute, hour and day: the answer to request 315. [BrokerStatsData]"""

    minute: Annotated[StatsItem, "statsMinute"] = field(default_factory=StatsItem)
    hour: Annotated[StatsItem, "statsHour"] = field(default_factory=StatsItem)
    day: Annotated[StatsItem, "statsDay"] = field(default_factory=StatsItem)


@dataclass(frozen=True, slots=True)
class QueueEntry(Body):
    """An entry of a consume queue. [ConsumeQueueData]"""

    commit_log_offset: Annotated[int, "physicOffset"] = 0
    size: Annotated[int, "physicSize"] = 0
    tags_code: int = 0
    passes: Annotated[bool, "eval"] = False
    """Whether the filter of the group passes it."""
    extension: Annotated[str | None, "extendDataJson"] = None
    bit_map: str | None = None
    message: Annotated[str | None, "msg"] = None
    """What went wrong while the broker looked at it."""


@dataclass(frozen=True, slots=True)
class QueueEntries(Body):
    """Entries of a consume queue: the answer to request 321. [QueryConsumeQueueResponseBody]"""

    entries: Annotated[tuple[QueueEntry, ...], "queueData"] = ()
    min_offset: Annotated[int, "minQueueIndex"] = 0
    max_offset: Annotated[int, "maxQueueIndex"] = 0
    subscription: Annotated[Subscription | None, "subscriptionData"] = None
    filter: Annotated[str | None, "filterData"] = None
