"""Bodies of frames: what requests and answers carry behind their headers.

``fastjson`` reads and writes the JSON that RocketMQ makes; ``body`` is the base of the classes that hold it. Every
other file holds the bodies of one subject. All classes stand here, with ``decode(bytes)`` and ``encode()``.
"""

from __future__ import annotations

from rmqclient.remoting.bodies.body import (
    Body,
)
from rmqclient.remoting.bodies.heartbeat import (
    ClientConfigCheck,
    ConsumeFrom,
    ConsumerData,
    ConsumerIds,
    ConsumeType,
    Heartbeat,
    MessageModel,
    ProducerData,
    Subscription,
)
from rmqclient.remoting.bodies.members import (
    Connection,
    ConsumerConnection,
    ConsumeStatus,
    DirectOutcome,
    DirectResult,
    PopQueueInfo,
    ProcessQueueInfo,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
    RunningInfo,
)
from rmqclient.remoting.bodies.names import (
    GroupList,
    KVTable,
    TopicList,
)
from rmqclient.remoting.bodies.offsets import (
    ConsumerStatus,
    CorrectionOffsets,
    DelayOffsets,
    OffsetTable,
    ResetOffset,
)
from rmqclient.remoting.bodies.queues import (
    Assignment,
    AssignmentQuery,
    Assignments,
    LockedQueues,
    LockRequest,
    RequestMode,
)
from rmqclient.remoting.bodies.registration import (
    MOST_OPENED_BYTES,
    Registration,
)
from rmqclient.remoting.bodies.route import (
    MASTER_ID,
    READABLE,
    WRITABLE,
    ClusterInfo,
    RouteBroker,
    RouteQueue,
    TopicRoute,
)
from rmqclient.remoting.bodies.settings import (
    DataVersion,
    GroupConfig,
    GroupTable,
    TopicConfig,
    TopicTable,
)
from rmqclient.remoting.bodies.stats import (
    BrokerStats,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    QueueEntries,
    QueueEntry,
    QueueProgress,
    QueueRange,
    QueueTimeSpan,
    StatsItem,
    TopicStats,
)

__all__ = [
    "MASTER_ID",
    "MOST_OPENED_BYTES",
    "READABLE",
    "WRITABLE",
    "Assignment",
    "AssignmentQuery",
    "Assignments",
    "Body",
    "BrokerStats",
    "ClientConfigCheck",
    "ClusterInfo",
    "Connection",
    "ConsumeFrom",
    "ConsumeStats",
    "ConsumeStatsList",
    "ConsumeStatus",
    "ConsumeTimeSpans",
    "ConsumeType",
    "ConsumerConnection",
    "ConsumerData",
    "ConsumerIds",
    "ConsumerStatus",
    "CorrectionOffsets",
    "DataVersion",
    "DelayOffsets",
    "DirectOutcome",
    "DirectResult",
    "GroupConfig",
    "GroupList",
    "GroupTable",
    "Heartbeat",
    "KVTable",
    "LockRequest",
    "LockedQueues",
    "MessageModel",
    "OffsetTable",
    "PopQueueInfo",
    "ProcessQueueInfo",
    "ProducerConnection",
    "ProducerData",
    "ProducerInfo",
    "ProducerTable",
    "QueueEntries",
    "QueueEntry",
    "QueueProgress",
    "QueueRange",
    "QueueTimeSpan",
    "Registration",
    "RequestMode",
    "ResetOffset",
    "RouteBroker",
    "RouteQueue",
    "RunningInfo",
    "StatsItem",
    "Subscription",
    "TopicConfig",
    "TopicList",
    "TopicRoute",
    "TopicStats",
    "TopicTable",
]
