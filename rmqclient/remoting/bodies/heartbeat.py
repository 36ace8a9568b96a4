"""Heartbeats: a client's producers and consumers."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated

from rmqclient.remoting.bodies.body import Body


class ConsumeType(enum.Enum):
    """How a consumer gets its messages. [ConsumeType]"""

    CONSUME_ACTIVELY = "PULL"
    CONSUME_PASSIVELY = "PUSH"
    CONSUME_POP = "POP"


class MessageModel(enum.Enum):
    """Whether every member gets every message, or each message goes to one member. [MessageModel]"""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFrom(enum.Enum):
    """Where a group without an offset begins. Three are deprecated. [ConsumeFromWhere]"""

    CONSUME_FROM_LAST_OFFSET = 0
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = 1
    CONSUME_FROM_MIN_OFFSET = 2
    CONSUME_FROM_MAX_OFFSET = 3
    CONSUME_FROM_FIRST_OFFSET = 4
    CONSUME_FROM_TIMESTAMP = 5


@dataclass(frozen=True, slots=True)
class Subscription(Body):
    """A group's subscription to a topic. [SubscriptionData]"""

    topic: str
    expression: Annotated[str, "subString"] = "*"
    version: Annotated[int, "subVersion"] = 0
    """Time at which it was made, in ms since 1970 (the Go client: ns). Only compared within one group."""
    expression_type: str = "TAG"
    tags: Annotated[tuple[str, ...], "tagsSet"] = ()
    codes: Annotated[tuple[int, ...], "codeSet"] = ()
    """Java hashes of the tags."""
    class_filter_mode: bool = False
    filter_class_source: str | None = None


@dataclass(frozen=True, slots=True)
class ProducerData(Body):
    """A producer group of a client."""

    group: Annotated[str, "groupName"]


@dataclass(frozen=True, slots=True)
class ConsumerData(Body):
    """A consumer group of a client, with its subscriptions."""

    group: Annotated[str, "groupName"]
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from: Annotated[ConsumeFrom, "consumeFromWhere"] = ConsumeFrom.CONSUME_FROM_LAST_OFFSET
    subscriptions: Annotated[tuple[Subscription, ...], "subscriptionDataSet"] = ()
    unit_mode: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat(Body):
    """The body of request 34. [HeartbeatData]"""

    client_id: Annotated[str, "clientID"]
    producers: Annotated[tuple[ProducerData, ...], "producerDataSet"] = ()
    consumers: Annotated[tuple[ConsumerData, ...], "consumerDataSet"] = ()
    fingerprint: Annotated[int | None, "heartbeatFingerprint"] = None
    """Of 5.x clients; 0 unless they leave out subscriptions that the broker already has."""
    without_subscriptions: Annotated[bool | None, "withoutSub"] = None


@dataclass(frozen=True, slots=True)
class ClientConfigCheck(Body):
    """The body of request 46: may this group subscribe like this? [CheckClientRequestBody]"""

    client_id: str
    group: str
    subscription: Annotated[Subscription, "subscriptionData"]
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerIds(Body):
    """Client ids of the members of a group: the answer to request 38. [GetConsumerListByGroupResponseBody]"""

    ids: Annotated[tuple[str, ...], "consumerIdList"] = ()
