"""Routes: answers of name servers about the queues of topics and the brokers of clusters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from rmqclient.remoting.bodies.body import Body

MASTER_ID = 0
"""Broker id of a master; slaves have others. [MixAll.MASTER_ID]"""

SLAVE_ID = 1
"""Broker id of the slave suggested to slow clients. [whichBrokerWhenConsumeSlowly]"""

READABLE = 4
WRITABLE = 2
"""Bits of a topic's permission. [PermName]"""


@dataclass(frozen=True, slots=True)
class RouteBroker(Body):
    """A broker and the addresses of its master and slaves, by broker id: 0 is the master. [BrokerData]"""

    name: Annotated[str, "brokerName"]
    cluster: str = ""
    addresses: Annotated[dict[int, str], "brokerAddrs"] = field(default_factory=dict)
    enable_acting_master: bool | None = None
    """Sent by 5.x brokers: a slave may act for its master."""
    zone_name: str | None = None


@dataclass(frozen=True, slots=True)
class RouteQueue(Body):
    """Number and permission of a topic's queues at one broker. [QueueData]"""

    broker_name: str
    read_queues: Annotated[int, "readQueueNums"]
    write_queues: Annotated[int, "writeQueueNums"]
    perm: int = READABLE | WRITABLE
    topic_sys_flag: int = 0


@dataclass(frozen=True, slots=True)
class TopicRoute(Body):
    """The brokers of a topic's queues: the answer to request 105. [TopicRouteData]"""

    brokers: Annotated[tuple[RouteBroker, ...], "brokerDatas"] = ()
    queues: Annotated[tuple[RouteQueue, ...], "queueDatas"] = ()
    order_conf: Annotated[str | None, "orderTopicConf"] = None
    """``broker-a:4;broker-b:2`` for a topic with a fixed number of queues; otherwise None."""
    filter_servers: Annotated[dict[str, tuple[str, ...]], "filterServerTable"] = field(default_factory=dict)
    """Always empty since 4.3."""


@dataclass(frozen=True, slots=True)
class ClusterInfo(Body):
    """Brokers by name, and the names of each cluster's brokers: the answer to request 106. [ClusterInfo]"""

    brokers: Annotated[dict[str, RouteBroker], "brokerAddrTable"] = field(default_factory=dict)
    clusters: Annotated[dict[str, tuple[str, ...]], "clusterAddrTable"] = field(default_factory=dict)
