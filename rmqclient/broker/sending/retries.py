"""Retries: failed messages, and their way to the group's dead letters.

A remote member returns a message by request 36, or sends it to the retry topic if that fails. A local member stores the
copy itself (:mod:`rmqclient.failures.retry`). All write the same properties and count the same attempts, so they share
the group's retry topic and its dead letters. [AbstractSendMessageProcessor.consumerSendMsgBack]
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.request import Request
from rmqclient.broker.routes import PUB, Need, Route, need_of_group, need_of_topic
from rmqclient.broker.sending.appends import Appends
from rmqclient.broker.sending.flushes import Flushes
from rmqclient.broker.sending.hosts import offset_id
from rmqclient.broker.sending.incoming import ORIGINS, Incoming
from rmqclient.broker.sending.waits import NO_WAIT, Wait
from rmqclient.broker.stored_names import is_group, stored_group
from rmqclient.broker.topics.system_topics import topic_of
from rmqclient.broker.topics.topic_names import dead_letter_topic, retry_topic
from rmqclient.broker.topics.topics import Topics
from rmqclient.failures.failure import without_longest
from rmqclient.failures.origin import FIRST_LEVEL, origin_topic
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.frame import Frame
from rmqclient.store import RESERVED_PROPERTIES, MessageQueue, MessageStore, ReceivedMessage
from rmqclient.store.bodies import open_body
from rmqclient.store.errors import (
    BodyUnreadable,
    MessageExpired,
    NotInstalled,
    PropertiesTooLarge,
    StoreCorrupt,
    UnknownTopic,
)
from rmqclient.store.wire import parse_offset_id

_FIRST_WITH_MOST: Final = 121
"""Number of the first version whose clients send the limit of attempts. [V3_4_9]"""
_WRITABLE: Final = 2
_OF_A_COPY: Final = (RESERVED_PROPERTIES - {"KEYS", "TAGS"}) | ORIGINS | {"CLUSTER", "DLQ_ORIGIN_MESSAGE_ID"}
"""Properties in which a copy may differ; also all that begin with ``RMQ_``, such as the history of its failures."""


class Retries:
    """Stores failed messages for their next attempt, or as dead letters."""

    def __init__(
        self, store: MessageStore, topics: Topics, groups: GroupSettings, appends: Appends, flushes: Flushes
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._appends = appends
        self._flushes = flushes

    def routes(self) -> Iterable[Route]:
        """Declare the return of messages. It may wait for the disk, for example if a topic is made."""
        yield Route(RequestCode.CONSUMER_SEND_MSG_BACK, self._send_back, needs=_of_return, writes=True, slow=True)

    def settle(self, request: Request, message: Incoming, group: str, wait: Wait) -> Wait:
        """Make a message for a group's retry topic a dead letter if its attempts are used up.

        Returns its delay. Raises AnswerError for an invalid group, and for a message with an origin to which its client
        may not send, unless it is a copy of a message stored there.
        """
        most = self._most(request, self._settings(request, group))
        is_dead = message.reconsume_times >= most
        failed = self._failed_record(message.properties)
        _check_origins(request, message, failed)
        if failed is not None:
            self._count(group, failed, is_dead=is_dead)
        if not is_dead:
            return wait
        message.topic = self._dead_letters(group)
        message.queue_id = 0
        message.properties["DELAY"] = "0"
        _say_origin(message.properties, message.properties.get("RETRY_TOPIC"))
        return NO_WAIT

    def _send_back(self, request: Request) -> Frame | None:
        fields = request.fields
        group: str = fields["group"]
        settings = self._settings(request, group)
        if settings.retry_queues <= 0:
            return request.success()
        config = self._topics.create_retry(group, settings.retry_queues)
        topic = retry_topic(group)
        if not config.perm & _WRITABLE:
            raise AnswerError(ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden")
        message = record_at(self._store, fields["offset"])
        if message is None:
            raise AnswerError(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {fields['offset']}")
        request.check_topic(topic_of(message), writes=False)
        properties = _properties(message, request)
        level: int = fields["delayLevel"]
        if level < 0 or message.reconsume_times >= self._most(request, settings):
            topic, queue_id, level = self._dead_letters(group), 0, 0
            properties = _dead(message, properties)
        else:
            queue_id = random.randrange(max(1, config.write_queue_count))
            level = level or FIRST_LEVEL + message.reconsume_times
        try:
            result = self._appends.append_copy(message, topic, queue_id, properties, level)
        except PropertiesTooLarge:  # a broker, whose store this was, leaves no space for the properties of a retry
            topic = self._dead_letters(group)
            result = self._appends.append_copy(message, topic, 0, _dead(message, properties))
        self._count(group, message, is_dead=topic == dead_letter_topic(group))
        return self._flushes.when_flushed(request, request.success(), result.commit_log_end)

    def _failed_record(self, properties: Mapping[str, str]) -> ReceivedMessage | None:
        """Return the original record of a consumer's copy; None if it is not in this store."""
        try:
            origin = parse_offset_id(properties.get("ORIGIN_MESSAGE_ID", ""))
        except ValueError:
            return None
        found = record_at(self._store, origin.commit_log_offset)
        return found if found is not None and found.topic == properties.get("RETRY_TOPIC") else None

    def _count(self, group: str, message: ReceivedMessage, *, is_dead: bool) -> None:
        """Count the failed attempt in the group's queue from which the message came."""
        store, queue = self._store, MessageQueue(message.topic, message.queue_id)
        slot = store.groups.find(stored_group(group), store.topics.slot(queue))
        if slot is None:
            return
        slot.add("failed", 1)
        if is_dead:
            slot.count_dead_letter(store.config.lock_timeout_ms)

    def _settings(self, request: Request, group: str) -> bodies.GroupConfig:
        if not is_group(group):
            raise AnswerError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group[:130]!r}"
            )
        return self._groups.auto_create(group, request.peer.remote)

    @staticmethod
    def _most(request: Request, settings: bodies.GroupConfig) -> int:
        """Return the limit of retries: the client's, or that of the group's settings."""
        given: int | None = request.fields.get("maxReconsumeTimes")
        is_asked = given is not None and request.frame.version >= _FIRST_WITH_MOST
        return given if is_asked and given is not None else settings.most_retries

    def _dead_letters(self, group: str) -> str:
        topic = dead_letter_topic(group)
        self._topics.create_missing(topic)
        return topic


def _check_origins(request: Request, message: Incoming, failed: ReceivedMessage | None) -> None:
    origins = {value for name, value in message.properties.items() if name in ORIGINS}
    if failed is not None and _is_copy(message, failed):
        origins.discard(failed.topic)
    for origin in origins:
        request.check_topic(origin, writes=True)


def _is_copy(message: Incoming, failed: ReceivedMessage) -> bool:
    """Whether a message equals the failed one, except for properties that consumers and brokers put into copies."""
    for name, value in message.properties.items():
        if not (name in _OF_A_COPY or name.startswith("RMQ_") or failed.properties.get(name) == value):
            return False
    try:
        return open_body(message.body, message.sys_flag, len(failed.body)) == failed.body
    except (BodyUnreadable, NotInstalled):
        return False


def _properties(message: ReceivedMessage, request: Request) -> dict[str, str]:
    """Return the properties of the copy of a returned message."""
    found = {**message.properties, "RETRY_TOPIC": origin_topic(message), "WAIT": "false"}
    if not found.get("ORIGIN_MESSAGE_ID"):
        found["ORIGIN_MESSAGE_ID"] = offset_id(request.peer.local, message.commit_log_offset)
    return found


def _dead(message: ReceivedMessage, properties: dict[str, str]) -> dict[str, str]:
    """Return the properties of a dead letter, as far as they fit."""
    properties["DELAY"] = "0"
    _say_origin(properties, origin_topic(message))
    return without_longest(properties)[0]


def _say_origin(properties: dict[str, str], topic: str | None) -> None:
    """Set the origin of a dead letter. [DLQ_ORIGIN_TOPIC, RocketMQ 5]"""
    if topic:
        properties["DLQ_ORIGIN_TOPIC"] = topic
    if properties.get("ORIGIN_MESSAGE_ID"):
        properties["DLQ_ORIGIN_MESSAGE_ID"] = properties["ORIGIN_MESSAGE_ID"]


def _of_return(request: Request) -> Iterator[Need]:
    """Yield the needs of a returned message. The handler checks the topic that the message was read from."""
    if topic := request.fields.get("originTopic"):
        yield need_of_topic(topic, PUB)
    yield need_of_group(request.fields["group"])


def record_at(store: MessageStore, commit_log_offset: int) -> ReceivedMessage | None:
    """Return the message at a log offset; None if no message begins there, or if it was removed or is damaged.

    The offset comes from a client, and a body may contain bytes that look like a record. So the entry in the message's
    queue must have this offset.
    """
    if not store.state.min_offset <= commit_log_offset < store.state.published_to:
        return None
    try:
        found = store.messages.read(commit_log_offset)
        queue = MessageQueue(found.topic, found.queue_id)
        store.topics.slot(queue)
        entry = store.consume_queues[queue].entry_or_none(found.queue_offset)
    except (MessageExpired, StoreCorrupt, UnknownTopic, FileNotFoundError):
        return None
    return found if entry is not None and entry.commit_log_offset == commit_log_offset else None
