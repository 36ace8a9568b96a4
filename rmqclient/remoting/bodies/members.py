"""Members of groups: their connections to a broker, and the state of consumers."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Annotated

from rmqclient.remoting.bodies.body import Body
from rmqclient.remoting.bodies.heartbeat import ConsumeFrom, ConsumeType, MessageModel, Subscription
from rmqclient.store import MessageQueue


@dataclass(frozen=True, slots=True)
class Connection(Body):
    """A member of a group at a broker. [Connection]"""

    client_id: str
    address: Annotated[str, "clientAddr"] = ""
    language: str = "JAVA"
    version: int = 0
    """Ordinal of its RocketMQ version."""


@dataclass(frozen=True, slots=True)
class ConsumerConnection(Body):
    """The members of a consumer group: the answer to request 203. [ConsumerConnection]"""

    connections: Annotated[tuple[Connection, ...], "connectionSet"] = ()
    subscriptions: Annotated[dict[str, Subscription], "subscriptionTable"] = field(default_factory=dict)
    """By topic."""
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from: Annotated[ConsumeFrom | None, "consumeFromWhere"] = None


@dataclass(frozen=True, slots=True)
class ProducerConnection(Body):
    """The members of a producer group: the answer to request 204. [ProducerConnection]"""

    connections: Annotated[tuple[Connection, ...], "connectionSet"] = ()


@dataclass(frozen=True, slots=True)
class ProducerInfo(Body):
    """A member of a producer group, and when its last heartbeat came, in ms since 1970. [ProducerInfo]"""

    client_id: str
    address: Annotated[str, "remoteIP"] = ""
    language: str = "JAVA"
    version: int = 0
    last_update_timestamp: int = 0


@dataclass(frozen=True, slots=True)
class ProducerTable(Body):
    """The members of all producer groups by group: the answer to request 328. [ProducerTableInfo]"""

    groups: Annotated[dict[str, tuple[ProducerInfo, ...]], "data"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProcessQueueInfo(Body):
    """State of a queue in its consumer. Times are ms since 1970. [ProcessQueueInfo]"""

    commit_offset: int = 0
    cached_min_offset: Annotated[int, "cachedMsgMinOffset"] = 0
    cached_max_offset: Annotated[int, "cachedMsgMaxOffset"] = 0
    cached_count: Annotated[int, "cachedMsgCount"] = 0
    cached_mib: Annotated[int, "cachedMsgSizeInMiB"] = 0
    running_min_offset: Annotated[int, "transactionMsgMinOffset"] = 0
    running_max_offset: Annotated[int, "transactionMsgMaxOffset"] = 0
    running_count: Annotated[int, "transactionMsgCount"] = 0
    """Of an orderly consumer: messages in its handler."""
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    dropped: Annotated[bool, "droped"] = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


@dataclass(frozen=True, slots=True)
class PopQueueInfo(Body):
    """State of a queue in a POP consumer. [PopProcessQueueInfo]"""

    waiting_count: Annotated[int, "waitAckCount"] = 0
    dropped: Annotated[bool, "droped"] = False
    last_pop_timestamp: int = 0


@dataclass(frozen=True, slots=True)
class ConsumeStatus(Body):
    """Rates of a consumer in one topic; round-trip times in ms. [ConsumeStatus]"""

    pull_ms: Annotated[float, "pullRT"] = 0.0
    pull_tps: Annotated[float, "pullTPS"] = 0.0
    consume_ms: Annotated[float, "consumeRT"] = 0.0
    consume_ok_tps: Annotated[float, "consumeOKTPS"] = 0.0
    consume_failed_tps: Annotated[float, "consumeFailedTPS"] = 0.0
    consume_failed_count: Annotated[int, "consumeFailedMsgs"] = 0
    """In the last hour."""


@dataclass(frozen=True, slots=True)
class RunningInfo(Body):
    """State of a consumer: the answer to request 307. [ConsumerRunningInfo]"""

    properties: dict[str, str] = field(default_factory=dict)
    subscriptions: Annotated[tuple[Subscription, ...], "subscriptionSet"] = ()
    queues: Annotated[dict[MessageQueue, ProcessQueueInfo], "mqTable"] = field(default_factory=dict)
    status: Annotated[dict[str, ConsumeStatus], "statusTable"] = field(default_factory=dict)
    """By topic."""
    threads: Annotated[str | None, "jstack"] = None
    """Stack traces of the threads, if the request asked for them."""
    popped_queues: Annotated[dict[MessageQueue, PopQueueInfo] | None, "mqPopTable"] = None
    user_info: Annotated[dict[str, str] | None, "userConsumerInfo"] = None


class DirectOutcome(enum.Enum):
    """Outcome of a handler for a message of request 309. [CMResult]"""

    CR_SUCCESS = 0
    CR_LATER = 1
    CR_ROLLBACK = 2
    CR_COMMIT = 3
    CR_THROW_EXCEPTION = 4
    CR_RETURN_NULL = 5


@dataclass(frozen=True, slots=True)
class DirectResult(Body):
    """The answer to request 309. [ConsumeMessageDirectlyResult]"""

    outcome: Annotated[DirectOutcome | None, "consumeResult"] = None
    remark: str | None = None
    spent_ms: Annotated[int, "spentTimeMills"] = 0
    order: bool = False
    auto_commit: bool = True
