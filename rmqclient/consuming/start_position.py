"""Start position: where a group begins in the queues of a topic that it never consumed.

=============  ================================================================================================
``earliest``   the oldest message of each queue that is there when a member first takes the queue
``latest``     the end of every queue as it was when the group's first member joined
a time         the first message of each queue that was stored then or later, or else its end
=============  ================================================================================================

A queue that the topic gets later begins at its first message, and so does a retry topic: what comes into those comes
after the group has begun. RocketMQ asks for the position when a queue is allocated, and CONSUME_FROM_LAST_OFFSET begins
at 0 in a queue whose first message is still there (ConsumerManageProcessor.queryConsumerOffset).
"""

from __future__ import annotations

import datetime
import logging

from rmqclient.handler import Start
from rmqclient.names import RETRY_PREFIX
from rmqclient.store import MemberTable, MessageQueue, MessageStore
from rmqclient.store.errors import QueueError, UnknownTopic

_log = logging.getLogger(__name__)


def begin(store: MessageStore, members: MemberTable, group: str, topic: str, start: Start) -> None:
    """Make the slots of a new group for all queues of a topic, at once; call it before the member joins.

    Does nothing for a group that consumed the topic before, or of which another member runs: that one was first, and
    what the topic has got since then is the group's. Raises TableFull, StoreBusy.
    """
    if start == "earliest" or topic.startswith(RETRY_PREFIX):
        return
    if any((member.group, member.topic) == (group, topic) for member in members.all()):
        return
    try:
        queues = store.topics.queues(topic)
    except UnknownTopic:
        return
    if store.groups.begin(group, {store.topics.slot(queue): _offset(store, queue, start) for queue in queues}):
        _keep(store, group)


def _offset(store: MessageStore, queue: MessageQueue, start: Start) -> int:
    if isinstance(start, datetime.datetime):
        return store.queue_offset_by_time(queue, round(start.timestamp() * 1000))
    return store.topics.max_offset(queue)


def _keep(store: MessageStore, group: str) -> None:
    """Write the position to the disk now: after a power cut the group would be a new one again, and begin later."""
    try:
        store.persist_offsets()
    except QueueError as error:
        _log.error("group %s: where it began is not on the disk yet, which is tried again: %s", group, error)
