"""Locks of queues: an orderly consumer takes messages only from queues that the broker locked for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rmqclient.remoting.bodies.body import Body
from rmqclient.store import MessageQueue


@dataclass(frozen=True, slots=True)
class LockRequest(Body):
    """Which queues a member wants to lock (41) or to unlock (42). [LockBatchRequestBody, UnlockBatchRequestBody]"""

    group: Annotated[str, "consumerGroup"]
    client_id: str
    queues: Annotated[tuple[MessageQueue, ...], "mqSet"] = ()
    only_this_broker: bool | None = None
    """Of 5.x clients: true asks a master not to ask the other replicas."""


@dataclass(frozen=True, slots=True)
class LockedQueues(Body):
    """The queues that are now locked for the member that asked: the answer to request 41. [LockBatchResponseBody]"""

    queues: Annotated[tuple[MessageQueue, ...], "lockOKMQSet"] = ()
