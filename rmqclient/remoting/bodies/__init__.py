"""Bodies of requests and answers.

``fastjson`` reads and writes RocketMQ's JSON; ``body`` is the base class. Every other file has the bodies of one
subject. All classes can be imported from here, and have ``decode(bytes)`` and ``encode()``. A name is imported at its
first use, because only tools need most of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

_NAMES = {
    "body": "Body",
    "heartbeat": (
        "ClientConfigCheck ConsumeFrom ConsumeType ConsumerData ConsumerIds Heartbeat MessageModel ProducerData "
        "Subscription"
    ),
    "members": (
        "Connection ConsumeStatus ConsumerConnection DirectOutcome DirectResult PopQueueInfo ProcessQueueInfo "
        "ProducerConnection ProducerInfo ProducerTable RunningInfo"
    ),
    "names": "GroupList KVTable TopicList",
    "offsets": "ConsumerStatus CorrectionOffsets DelayOffsets OffsetTable ResetOffset",
    "queues": "Assignment AssignmentQuery Assignments LockRequest LockedQueues RequestMode",
    "route": "ClusterInfo MASTER_ID READABLE RouteBroker RouteQueue SLAVE_ID TopicRoute WRITABLE",
    "settings": "DataVersion GroupConfig GroupTable TopicConfig TopicTable",
    "stats": (
        "BrokerStats ConsumeStats ConsumeStatsList ConsumeTimeSpans QueueEntries QueueEntry QueueProgress "
        "QueueRange QueueTimeSpan StatsItem TopicStats"
    ),
}
"""Module → the names that it gives."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

if TYPE_CHECKING:
    from rmqclient.remoting.bodies.body import *
    from rmqclient.remoting.bodies.heartbeat import *
    from rmqclient.remoting.bodies.members import *
    from rmqclient.remoting.bodies.names import *
    from rmqclient.remoting.bodies.offsets import *
    from rmqclient.remoting.bodies.queues import *
    from rmqclient.remoting.bodies.route import *
    from rmqclient.remoting.bodies.settings import *
    from rmqclient.remoting.bodies.stats import *
else:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found  # later look-ups do not come here
        return found
