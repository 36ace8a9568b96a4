"""Statistics: progress of topics and groups, and rates of a broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from rmqclient.remoting.bodies.body import Body
from rmqclient.remoting.bodies.heartbeat import Subscription
from rmqclient.store import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueRange(Body):
    """The messages of a queue: first offset, end, and time of the last one. [TopicOffset]"""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0
    """ms since 1970; 0 for an empty queue."""


@dataclass(frozen=True, slots=True)
class TopicStats(Body):
    """The queues of a topic at one broker: the answer to request 202. [TopicStatsTable]"""

    queues: Annotated[dict[MessageQueue, QueueRange], "offsetTable"] = field(default_factory=dict)
    put_tps: Annotated[float | None, "topicPutTps"] = None
    """Messages stored per second; of 5.x brokers."""


@dataclass(frozen=True, slots=True)
class QueueProgress(Body):
    """A group's progress in a queue. [OffsetWrapper]"""

    broker_offset: int = 0
    """The end of the queue."""
    consumer_offset: int = 0
    """The group's offset; -1 if it has no offset."""
    last_timestamp: int = 0
    """When the last finished message was stored, in ms since 1970."""
    pull_offset: int | None = None
    """Pull offset of the group; of 5.x brokers."""


@dataclass(frozen=True, slots=True)
class ConsumeStats(Body):
    """A group's progress at one broker: the answer to request 208. [ConsumeStats]"""

    queues: Annotated[dict[MessageQueue, QueueProgress], "offsetTable"] = field(default_factory=dict)
    consume_tps: float = 0.0


@dataclass(frozen=True, slots=True)
class ConsumeStatsList(Body):
    """Progress of all groups at a broker, with an entry for each topic: the answer to 317. [ConsumeStatsList]"""

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
    """Milliseconds since the next message was stored; without a next message, the time in ms since 1970."""
    min_text: Annotated[str | None, "minTimeStampStr"] = None
    max_text: Annotated[str | None, "maxTimeStampStr"] = None
    consume_text: Annotated[str | None, "consumeTimeStampStr"] = None


@dataclass(frozen=True, slots=True)
class ConsumeTimeSpans(Body):
    """The answer to request 303. [QueryConsumeTimeSpanBody]"""

    spans: Annotated[tuple[QueueTimeSpan, ...], "consumeTimeSpanSet"] = ()


@dataclass(frozen=True, slots=True)
class StatsItem(Body):
    """A broker's count over some time. [BrokerStatsItem]"""

    sum: int = 0
    per_second: Annotated[float, "tps"] = 0.0
    per_call: Annotated[float, "avgpt"] = 0.0


@dataclass(frozen=True, slots=True)
class BrokerStats(Body):
    """A count over the last minute, hour and day: the answer to request 315. [BrokerStatsData]"""

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
    """The error, if the broker could not read the message."""


@dataclass(frozen=True, slots=True)
class QueueEntries(Body):
    """Entries of a consume queue: the answer to request 321. [QueryConsumeQueueResponseBody]"""

    entries: Annotated[tuple[QueueEntry, ...], "queueData"] = ()
    min_offset: Annotated[int, "minQueueIndex"] = 0
    max_offset: Annotated[int, "maxQueueIndex"] = 0
    subscription: Annotated[Subscription | None, "subscriptionData"] = None
    filter: Annotated[str | None, "filterData"] = None
