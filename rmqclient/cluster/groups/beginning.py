"""Beginning: sets the start offsets of a new group, for all of its members.

In RocketMQ each member asks when it gets a queue, and for a young queue the answer is always 0
(ConsumerManageProcessor.queryConsumerOffset). Here the first member of a group sets the offsets of all queues, once,
before it joins. A broker's lock of a queue excludes other members meanwhile.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.groups.locks import QueueLocks
from rmqclient.cluster.groups.offsets import BrokerOffsets, FileOffsets, offsets_path, oldest_offset
from rmqclient.errors import BrokerUnreachable, StoreBusy
from rmqclient.names import group_and_member
from rmqclient.remoting.bodies import GroupList
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.table import request
from rmqclient.store import MessageQueue

_LOCK_TIMEOUT_S = 65.0
"""Seconds to wait for the lock; a broker frees that of a dead process after 60 s."""
_LOOK_EVERY_S = 0.05


def begin_group(client: ClusterClient, group: str, offsets: Mapping[MessageQueue, int]) -> bool:
    """Set a new group's start offsets in all queues of a topic. Does nothing and returns False if it has begun.

    A group has begun if a broker of the topic has an offset or a member of it; a member of a broadcast group, if its
    file has the topic. Names are those on the wire. Raises StoreBusy if another process holds the lock for 65 s,
    ClientIdInUse, BrokerUnreachable if a queue's master is away, because it could not be set there, and as a request.
    """
    name, member = group_and_member(group)
    if member is not None:
        return _begin_member(client, name, member, offsets)
    if not offsets or _has_begun(client, group, offsets):
        return False
    _check_masters(client, group, offsets)  # before the first offset is set: after that the group has begun
    with _alone(client, group, min(offsets, key=lambda queue: queue.sort_key)):
        if _has_begun(client, group, offsets):
            return False
        at_brokers = BrokerOffsets(client, group)
        for queue, offset in offsets.items():
            at_brokers.set(queue, offset)
    return True


def _begin_member(client: ClusterClient, group: str, member: str, offsets: Mapping[MessageQueue, int]) -> bool:
    path = offsets_path(client.url.name_servers, member, group)
    with contextlib.closing(FileOffsets(path, partial(oldest_offset, client))) as kept:
        return kept.begin({queue.topic for queue in offsets}, offsets)


def _has_begun(client: ClusterClient, group: str, queues: Iterable[MessageQueue]) -> bool:
    brokers = {queue.broker_name: queue.topic for queue in queues}
    return any(group in _groups_of(client, broker, topic) for broker, topic in brokers.items())


def _groups_of(client: ClusterClient, broker_name: str, topic: str) -> tuple[str, ...]:
    """Return the groups with an offset in a topic at a broker, or with a member that subscribes to it."""
    answer = client.call(
        client.brokers.read_address(broker_name),
        request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic=client.url.wrap(topic)),
    )
    return GroupList.decode(answer.body).groups


def _check_masters(client: ClusterClient, group: str, queues: Iterable[MessageQueue]) -> None:
    for queue in queues:
        try:
            client.brokers.address(queue.broker_name)
        except BrokerUnreachable as error:
            raise BrokerUnreachable(
                f"group {group!r} is new, and cannot begin in {queue}: {error}; start it when the master is back, or "
                "with start='earliest'"
            ) from error


@contextmanager
def _alone(client: ClusterClient, group: str, queue: MessageQueue) -> Iterator[None]:
    locks = QueueLocks(client, group, ordered=False)
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while not locks.lock(queue):
        if time.monotonic() > deadline:
            raise StoreBusy(
                f"another process keeps the lock of {queue} for group {group!r}: it may set where it begins"
            )
        time.sleep(_LOOK_EVERY_S)
    try:
        yield
    finally:
        locks.unlock(queue)
