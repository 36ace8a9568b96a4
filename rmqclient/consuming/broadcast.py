"""Broadcast: every member of a group gets every message, once, and keeps its own offsets.

A member is a group of its own in the group-queue table, named ``group|member``. ``|`` is in RocketMQ's alphabet of
groups and not in ours, so no group of a user has such a name. A broker that opens the store takes the entries
``topic@group|member`` of ``consumerOffset.json`` for those of groups that are not connected.

The name of a member outlives its process: a process that starts under the name goes on where the last one stopped. Two
processes cannot have one name at the same time. As in RocketMQ there is no retry and no dead letter: a message whose
handler fails is logged and dropped (ConsumeMessageConcurrentlyService.processConsumeResult).
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqclient.errors import HandlerError
from rmqclient.failures.failure import Failure
from rmqclient.failures.retry import RetryPolicy
from rmqclient.handler import Handler
from rmqclient.message import ReceivedMessage
from rmqclient.names import MAX_NAME_CHARACTERS, MEMBER_SEPARATOR, check_group, check_member
from rmqclient.store.errors import InvalidName
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


def group_of_member(handler: Handler, member: str | None) -> str:
    """Return the group under which a member of a broadcast group keeps its offsets.

    Raises HandlerError when the member has no name, InvalidName when its name is not allowed or is too long.
    """
    if member is None:
        raise HandlerError(
            f"handler of topic {handler.topic!r} in group {handler.group!r}: broadcast=True needs a name that this "
            'process has again after a restart, under which its offsets are kept: PushConsumer(client_id="cache-1")'
        )
    name = f"{check_group(handler.group)}{MEMBER_SEPARATOR}{check_member(member)}"
    if len(name) > MAX_NAME_CHARACTERS:
        raise InvalidName(
            f"member {member!r} of broadcast group {handler.group!r}: both names together have "
            f"{len(name) - 1} characters, and at most {MAX_NAME_CHARACTERS - 1} fit; shorten one"
        )
    return name


class DroppedFailures:
    """Takes the failed messages of one broadcast handler: each is logged and dropped."""

    def __init__(self, group: str, policy: RetryPolicy, client_id: str) -> None:
        self.policy = policy
        self.client_id = client_id
        self._group = group

    def send_back(
        self, message: ReceivedMessage, failure: Failure, *_before: Failure, marks: Mapping[str, str] | None = None
    ) -> None:
        """Log a message that failed, which is then acknowledged."""
        del marks  # no copy of it is stored
        _log.error(
            "group %s: message %s (%s, queue %d, offset %d) failed and is dropped, as broadcast messages are: %s: %s",
            self._group, message.message_id, message.topic, message.queue_id, message.queue_offset,
            failure.error, failure.text,
        )  # fmt: skip
