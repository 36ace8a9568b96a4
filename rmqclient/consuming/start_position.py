"""Start position: where a group begins in the queues of a topic that it never consumed.

=============  ================================================================================================
``earliest``   the oldest message of each queue that is there when a member first takes the queue
``latest``     the end of every queue as it was when the group's first member joined
a time         the first message of each queue that was stored then or later; its end if there is none
=============  ================================================================================================

A queue that the topic gets later begins at its first message, and so does a retry topic: their messages come after the
group has begun. RocketMQ asks for the position when a queue is allocated, and CONSUME_FROM_LAST_OFFSET begins
at 0 in a queue whose first message is still there (ConsumerManageProcessor.queryConsumerOffset).
"""

from __future__ import annotations

import datetime

from rmqclient.backend.backend import Backend
from rmqclient.handler import Start
from rmqclient.names import RETRY_PREFIX
from rmqclient.store import MessageQueue
from rmqclient.store.errors import UnknownTopic


def begin(backend: Backend, group: str, topic: str, start: Start) -> None:
    """Set where a new group begins in all queues of a topic, at once; call it before the member joins.

    Does nothing for a group that consumed the topic before, or that has another running member: that member was first,
    and the messages that the topic has got since then belong to the group. Raises TableFull, StoreBusy.
    """
    if start == "earliest" or topic.startswith(RETRY_PREFIX):
        return
    try:
        queues = backend.topics.read_queues(topic)
    except UnknownTopic:
        return
    backend.groups.begin(group, {queue: _offset(backend, queue, start) for queue in queues})


def _offset(backend: Backend, queue: MessageQueue, start: Start) -> int:
    if isinstance(start, datetime.datetime):
        return backend.queues.offset_by_time(queue, round(start.timestamp() * 1000))
    return backend.queues.span(queue).max_offset
