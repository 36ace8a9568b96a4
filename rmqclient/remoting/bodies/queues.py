"""Queues of members: locked for an orderly consumer, or assigned by a 5.x broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rmqclient.remoting.bodies.body import Body
from rmqclient.remoting.bodies.heartbeat import MessageModel
from rmqclient.store import MessageQueue


@dataclass(frozen=True, slots=True)
class LockRequest(Body):
    """The queues that a member locks (41) or unlocks (42). [LockBatchRequestBody, UnlockBatchRequestBody]"""

    group: Annotated[str, "consumerGroup"]
    client_id: str
    queues: Annotated[tuple[MessageQueue, ...], "mqSet"] = ()
    only_this_broker: bool | None = None
    """Of 5.x clients: true asks a master not to ask the other replicas."""


@dataclass(frozen=True, slots=True)
class LockedQueues(Body):
    """The queues that the member has locked now: the answer to request 41. [LockBatchResponseBody]"""

    queues: Annotated[tuple[MessageQueue, ...], "lockOKMQSet"] = ()


@dataclass(frozen=True, slots=True)
class AssignmentQuery(Body):
    """The body of request 400: which queues does this member have? [QueryAssignmentRequestBody]"""

    topic: str
    group: Annotated[str, "consumerGroup"]
    client_id: str
    strategy_name: str
    message_model: MessageModel = MessageModel.CLUSTERING


@dataclass(frozen=True, slots=True)
class Assignment(Body):
    """A queue of a member, and whether it pulls (PULL) or pops (POP). [MessageQueueAssignment]"""

    queue: Annotated[MessageQueue, "messageQueue"]
    mode: str = "PULL"
    attachments: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Assignments(Body):
    """The answer to request 400; None: the member keeps its queues. [QueryAssignmentResponseBody]"""

    assignments: Annotated[tuple[Assignment, ...] | None, "messageQueueAssignments"] = None


@dataclass(frozen=True, slots=True)
class RequestMode(Body):
    """The body of request 401: whether a group pulls or pops a topic. [SetMessageRequestModeRequestBody]"""

    topic: str
    group: Annotated[str, "consumerGroup"]
    mode: str = "PULL"
    shared_queues: Annotated[int, "popShareQueueNum"] = 0
