"""Bodies of requests and answers.

``fastjson`` reads and writes RocketMQ's JSON; ``body`` is the base class. Every other file has the bodies of one
subject. All classes can be imported from here, and have ``decode(bytes)`` and ``encode()``. A name is imported at its
first use, because only tools need most of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
        SLAVE_ID,
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
    "SLAVE_ID",
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

_HOMES = {
    "Assignment": "queues",
    "AssignmentQuery": "queues",
    "Assignments": "queues",
    "Body": "body",
    "BrokerStats": "stats",
    "ClientConfigCheck": "heartbeat",
    "ClusterInfo": "route",
    "Connection": "members",
    "ConsumeFrom": "heartbeat",
    "ConsumeStats": "stats",
    "ConsumeStatsList": "stats",
    "ConsumeStatus": "members",
    "ConsumeTimeSpans": "stats",
    "ConsumeType": "heartbeat",
    "ConsumerConnection": "members",
    "ConsumerData": "heartbeat",
    "ConsumerIds": "heartbeat",
    "ConsumerStatus": "offsets",
    "CorrectionOffsets": "offsets",
    "DataVersion": "settings",
    "DelayOffsets": "offsets",
    "DirectOutcome": "members",
    "DirectResult": "members",
    "GroupConfig": "settings",
    "GroupList": "names",
    "GroupTable": "settings",
    "Heartbeat": "heartbeat",
    "KVTable": "names",
    "LockRequest": "queues",
    "LockedQueues": "queues",
    "MASTER_ID": "route",
    "MOST_OPENED_BYTES": "registration",
    "MessageModel": "heartbeat",
    "OffsetTable": "offsets",
    "PopQueueInfo": "members",
    "ProcessQueueInfo": "members",
    "ProducerConnection": "members",
    "ProducerData": "heartbeat",
    "ProducerInfo": "members",
    "ProducerTable": "members",
    "QueueEntries": "stats",
    "QueueEntry": "stats",
    "QueueProgress": "stats",
    "QueueRange": "stats",
    "QueueTimeSpan": "stats",
    "READABLE": "route",
    "Registration": "registration",
    "RequestMode": "queues",
    "ResetOffset": "offsets",
    "RouteBroker": "route",
    "RouteQueue": "route",
    "RunningInfo": "members",
    "SLAVE_ID": "route",
    "StatsItem": "stats",
    "Subscription": "heartbeat",
    "TopicConfig": "settings",
    "TopicList": "names",
    "TopicRoute": "route",
    "TopicStats": "stats",
    "TopicTable": "settings",
    "WRITABLE": "route",
}
"""Name → its module; a test compares this with the imports above."""

if not TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found  # later look-ups do not come here
        return found
