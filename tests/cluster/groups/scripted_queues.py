"""Queues of a scripted broker: messages that are pulled from it, and pulls that wait for some."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rmqclient.backend.group_protocols import Terms
from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.groups.grant import ClusterGrant
from rmqclient.cluster.groups.member_locks import MemberLocks
from rmqclient.cluster.groups.members import ClusterMembers
from rmqclient.cluster.groups.membership import ClusterMembership
from rmqclient.filters import MessageFilter
from rmqclient.message import ReceivedMessage
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields, response
from rmqclient.store import MessageQueue
from tests.support.cluster.scripted_cluster import ScriptedCluster, scripted_cluster
from tests.support.oracle.reference import ReferenceRecord, encode, format_properties

GROUP, TOPIC = "billing", "orders"
QUEUE = MessageQueue(TOPIC, 0, "broker-a")
LEASE_MS = 10_000
SPAN = 2_001
PATIENCE_S = 10.0


class ScriptedQueues:
    """What a broker has in its queues, by queue id. Pulls at the end of a queue stay unanswered until :meth:`put`."""

    def __init__(self) -> None:
        self.cluster: ScriptedCluster
        self.refusals: list[Callable[[Frame], Frame]] = []
        """Answers to the next pulls, instead of messages."""
        self._bodies: dict[int, list[tuple[bytes, str]]] = {}
        self._held: list[Frame] = []
        self._lock = threading.Lock()

    def put(self, *bodies: bytes, tags: str = "", queue_id: int = 0) -> None:
        """Store messages, and answer the pulls that wait for them."""
        with self._lock:
            self._bodies.setdefault(queue_id, []).extend((body, tags) for body in bodies)
            held, self._held = self._held, []
        for request in held:
            answer = self.pull(request)
            if answer is not None:
                self.cluster.answer(answer)

    def pull(self, request: Frame) -> Frame | None:
        """Answer a pull; None when it has to wait."""
        fields = request_fields(request)
        with self._lock:
            if self.refusals:
                return self.refusals.pop(0)(request)
            bodies = self._bodies.get(fields["queueId"], []) if fields["topic"] == TOPIC else []
            offset = fields["queueOffset"]
            found = range(offset, min(len(bodies), offset + fields["maxMsgNums"]))
            if not found:
                self._held.append(request)
                return None
            records = b"".join(record(number, *bodies[number], fields["queueId"]) for number in found)
            return pulled(request, ResponseCode.SUCCESS, found[-1] + 1, records, max_offset=len(bodies))


def record(queue_offset: int, body: bytes, tags: str, queue_id: int) -> bytes:
    """Return a record as a broker's commit log has it."""
    properties = format_properties({"TAGS": tags} if tags else {})
    written = ReferenceRecord(
        topic=TOPIC, body=body, queue_id=queue_id, queue_offset=queue_offset, properties=properties
    )
    return encode(written, crc_property=False)


def pulled(request: Frame, code: int, next_offset: int, body: bytes = b"", *, max_offset: int = 0) -> Frame:
    """Return the answer to a pull."""
    offsets: dict[str, Any] = {"nextBeginOffset": next_offset, "minOffset": 0, "maxOffset": max_offset}
    return response(request, code, body, suggestWhichBrokerId=0, **offsets)


@contextmanager
def scripted_queues(
    script: dict[RequestCode, Any] | None = None, brokers: Sequence[str] = ("broker-a",)
) -> Iterator[tuple[ScriptedCluster, ScriptedQueues]]:
    """Run a cluster of one broker with queues, or of several."""
    queues = ScriptedQueues()
    with scripted_cluster({RequestCode.PULL_MESSAGE: queues.pull, **(script or {})}, brokers=brokers) as cluster:
        queues.cluster = cluster
        yield cluster, queues


@contextmanager
def joined(
    cluster: ScriptedCluster, client_id: str = "me@host", wanted: MessageFilter | None = None, *, ordered: bool = False
) -> Iterator[ClusterMembership]:
    """Join the group as one member; it leaves with the block."""
    members = ClusterMembers(ClusterURL.parse(f"rocketmq://{cluster.address}"))
    membership = members.join(GROUP, TOPIC, client_id, Terms("*", wanted or MessageFilter(), ordered))
    try:
        yield membership
    finally:
        members.close()


def granted(membership: ClusterMembership, queue: MessageQueue = QUEUE) -> ClusterGrant:
    """Take the queue, which must be free."""
    grant = membership.grant(queue)
    assert grant is not None
    return grant


def locks_of(membership: ClusterMembership) -> MemberLocks:
    """Return the locks of a member of a group that shares its queues."""
    assert membership.locks is not None
    return membership.locks


def taken(membership: ClusterMembership, grant: ClusterGrant, count: int) -> list[ReceivedMessage]:
    """Take ``count`` messages; sleeps on the bell of the member in between. Fails when they do not come in time."""
    bell, end = membership.bell, time.monotonic() + PATIENCE_S
    found: list[ReceivedMessage] = []
    while len(found) < count:
        heard = bell.heard()
        batch = grant.take(count - len(found), SPAN)
        found += batch
        if not batch and not grant.arm(bell.lane):
            bell.wait(heard, PATIENCE_S)  # it rings for the other queues of the member, too
            assert grant.has_more or time.monotonic() < end, f"only {len(found)} of {count} messages came"
    return found


def eventually(condition: Callable[[], object], what: str) -> None:
    """Return when ``condition`` is true; fail when the time is up."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.005)
