"""Checks: what a pull must satisfy, in the order of RocketMQ's broker. [PullMessageProcessor]

Group, topic, its permission, the queue, the subscription.
"""

from __future__ import annotations

from typing import Final

from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.pulling.pull import HAS_FILTER_CLASS, HAS_SUBSCRIPTION, MAY_WAIT, Pull
from rmqclient.broker.pulling.queue_reader import MOST_BYTES, MOST_MESSAGES
from rmqclient.broker.pulling.rules import Subscriptions
from rmqclient.broker.pulling.selection import selection_of
from rmqclient.broker.request import Request
from rmqclient.broker.topics.topics import Topics, unknown
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.store import MessageQueue

_NO_FILTER_CLASS: Final = "a filter class is code of the consumer: this broker filters by TAG and SQL92"


class PullChecks:
    """The checks of all pulls. For the thread of the event loop."""

    def __init__(self, topics: Topics, groups: GroupSettings, subscriptions: Subscriptions) -> None:
        self._topics = topics
        self._groups = groups
        self._subscriptions = subscriptions

    def pull(self, request: Request) -> Pull | None:
        """Return the pull of a request; None if it is late, as :meth:`is_late`. Raises AnswerError."""
        queue, subscription = self._queue(request), self._subscription(request)
        fields = request.fields
        if subscription.version < fields["subVersion"]:
            return None
        offset = fields["queueOffset"]
        return Pull(
            request=request,
            group=fields["consumerGroup"],
            queue=queue,
            offset=offset,
            position=offset,
            most=max(1, min(fields["maxMsgNums"], MOST_MESSAGES)),
            most_bytes=max(1, min(fields.get("maxMsgBytes", MOST_BYTES), MOST_BYTES)),
            selection=selection_of(subscription),
            wait_s=max(0, fields["suspendTimeoutMillis"]) / 1000 if fields["sysFlag"] & MAY_WAIT else 0.0,
        )

    def is_late(self, request: Request) -> bool:
        """Return whether a pull without a subscription knows a newer version of it than the heartbeats."""
        fields = request.fields
        found = self._subscriptions.subscription(fields["consumerGroup"], fields["topic"])
        return found is not None and found.version < fields["subVersion"]

    def _queue(self, request: Request) -> MessageQueue:
        """Return the queue of a pull. Raises AnswerError if group, topic or queue do not allow it."""
        fields = request.fields
        group, topic, queue_id = fields["consumerGroup"], fields["topic"], fields["queueId"]
        if not self._groups.auto_create(group, request.peer.remote).may_consume:
            raise AnswerError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
        known = self._topics.config(topic)
        if known is None:
            raise unknown(topic)
        if not known.perm & bodies.READABLE:
            raise AnswerError(ResponseCode.NO_PERMISSION, f"the topic[{topic}] pulling message is forbidden")
        if not 0 <= queue_id < known.read_queue_count:
            raise AnswerError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{known.read_queue_count}] "
                f"consumer:[{request.peer.remote}]",
            )
        return MessageQueue(topic, queue_id)

    def _subscription(self, request: Request) -> bodies.Subscription:
        """Return the subscription of a pull, or of its group's heartbeats. Raises AnswerError."""
        fields = request.fields
        topic, flags = fields["topic"], fields["sysFlag"]
        if flags & HAS_FILTER_CLASS:
            raise AnswerError(ResponseCode.SYSTEM_ERROR, _NO_FILTER_CLASS)
        if flags & HAS_SUBSCRIPTION:
            kind = fields.get("expressionType") or "TAG"
            return bodies.Subscription(topic, fields.get("subscription") or "*", fields["subVersion"], kind)
        found = self._subscriptions.subscription(fields["consumerGroup"], topic)
        if found is None:
            raise AnswerError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        return found
