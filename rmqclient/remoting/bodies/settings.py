"""Settings of topics and of groups at a broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from rmqclient.remoting.bodies.body import Body
from rmqclient.remoting.bodies.route import READABLE, WRITABLE


@dataclass(frozen=True, slots=True)
class DataVersion(Body):
    """Version of a table: it differs after every change. [DataVersion]"""

    counter: int = 0
    timestamp: int = 0
    """ms since 1970."""
    state_version: int | None = None
    """Of 5.x brokers."""


@dataclass(frozen=True, slots=True)
class TopicConfig(Body):
    """A topic at one broker: the answer to request 351. [TopicConfig]"""

    name: Annotated[str, "topicName"]
    read_queues: Annotated[int, "readQueueNums"] = 16
    write_queues: Annotated[int, "writeQueueNums"] = 16
    perm: int = READABLE | WRITABLE
    filter_type: Annotated[str, "topicFilterType"] = "SINGLE_TAG"
    sys_flag: Annotated[int, "topicSysFlag"] = 0
    order: bool = False
    attributes: dict[str, str] | None = None
    """Of 5.x brokers, such as ``{"message.type": "FIFO"}``."""


@dataclass(frozen=True, slots=True)
class TopicTable(Body):
    """Topics of a broker by name: the answer to request 21, and part of a registration. [TopicConfigSerializeWrapper]

    Mappings are of 5.x brokers, for topics whose queues move between brokers.
    """

    version: Annotated[DataVersion, "dataVersion"] = field(default_factory=DataVersion)
    topics: Annotated[dict[str, TopicConfig], "topicConfigTable"] = field(default_factory=dict)
    mapping_version: Annotated[DataVersion | None, "mappingDataVersion"] = None
    mapping_details: Annotated[dict[str, object] | None, "topicQueueMappingDetailMap"] = None
    mapping_infos: Annotated[dict[str, object] | None, "topicQueueMappingInfoMap"] = None
    removed: Annotated[dict[str, int] | None, "removedTopics"] = None
    """Of this library: by topic, the commit log offset below which its messages were removed."""


@dataclass(frozen=True, slots=True)
class GroupConfig(Body):
    """A consumer group at one broker: the body of request 200. [SubscriptionGroupConfig]

    Fields that may be None are of 5.x brokers.
    """

    name: Annotated[str, "groupName"]
    may_consume: Annotated[bool, "consumeEnable"] = True
    may_consume_from_min: Annotated[bool, "consumeFromMinEnable"] = True
    may_broadcast: Annotated[bool, "consumeBroadcastEnable"] = True
    retry_queues: Annotated[int, "retryQueueNums"] = 1
    most_retries: Annotated[int, "retryMaxTimes"] = 16
    """Redeliveries of a message before it goes to the dead-letter topic."""
    broker_id: int = 0
    slow_broker_id: Annotated[int, "whichBrokerWhenConsumeSlowly"] = 1
    """Id of the slave suggested to a member that is far behind."""
    tells_changes: Annotated[bool, "notifyConsumerIdsChangedEnable"] = True
    attributes: dict[str, str] | None = None
    orderly: Annotated[bool | None, "consumeMessageOrderly"] = None
    timeout_minutes: Annotated[int | None, "consumeTimeoutMinute"] = None
    retry_policy: Annotated[object | None, "groupRetryPolicy"] = None
    sys_flag: Annotated[int | None, "groupSysFlag"] = None
    subscriptions: Annotated[object | None, "subscriptionDataSet"] = None


@dataclass(frozen=True, slots=True)
class GroupTable(Body):
    """Groups of a broker by name: the answer to request 201. [SubscriptionGroupWrapper]"""

    version: Annotated[DataVersion, "dataVersion"] = field(default_factory=DataVersion)
    groups: Annotated[dict[str, GroupConfig], "subscriptionGroupTable"] = field(default_factory=dict)
    forbidden: Annotated[dict[str, dict[str, int]] | None, "forbiddenTable"] = None
    """Of 5.x brokers: group → topic → bits of forbidden operations."""
