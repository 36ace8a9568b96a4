"""Bodies of frames: what requests and answers carry behind their headers.

``fastjson`` reads and writes the JSON that RocketMQ makes; ``body`` is the base of the classes that hold it. Every
other file holds the bodies of one subject. All classes stand here, with ``decode(bytes)`` and ``encode()``.
"""

from __future__ import annotations

from rmqclient.remoting.bodies.body import Body
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
from rmqclient.remoting.bodies.locks import LockedQueues, LockRequest
from rmqclient.remoting.bodies.route import (
    MASTER_ID,
    READABLE,
    WRITABLE,
    ClusterInfo,
    RouteBroker,
    RouteQueue,
    TopicRoute,
)

__all__ = [
    "MASTER_ID",
    "READABLE",
    "WRITABLE",
    "Body",
    "ClientConfigCheck",
    "ClusterInfo",
    "ConsumeFrom",
    "ConsumeType",
    "ConsumerData",
    "ConsumerIds",
    "Heartbeat",
    "LockRequest",
    "LockedQueues",
    "MessageModel",
    "ProducerData",
    "RouteBroker",
    "RouteQueue",
    "Subscription",
    "TopicRoute",
]
