"""Subscriptions: the subscriptions that this client's heartbeats send to brokers.

A broker filters by tags or by SQL92, not by both. A handler with both subscribes by ``(its sql) AND TAGS IN ('a',
'b')``. Filters by the body run here. Before the first message the topic's brokers check an expression. Without a route,
or without an answer of a broker, later pulls do the check.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.errors import (
    BrokerUnreachable,
    FilterError,
    NameServerUnreachable,
    QueueError,
    RequestTimedOut,
    UnknownTopic,
)
from rmqclient.filters import MessageFilter
from rmqclient.names import RETRY_PREFIX
from rmqclient.remoting.bodies import (
    ClientConfigCheck,
    ConsumeFrom,
    ConsumerConnection,
    ConsumerData,
    ConsumeType,
    MessageModel,
    Subscription,
)
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.table import request
from rmqclient.store import java_hash
from rmqclient.store.threads.logs import Log

SQL = "SQL92"
TAG = "TAG"

_log = Log(__name__)


def subscription_to(topic: str, wanted: MessageFilter) -> Subscription:
    """Return the subscription for a topic and a filter."""
    version = time.time_ns() // 1_000_000
    tags = sorted(wanted.tags.tags)
    if wanted.by_properties is not None:
        expression = wanted.by_properties.expression
        if tags:
            among = ", ".join("'" + tag.replace("'", "''") + "'" for tag in tags)
            expression = f"({expression}) AND TAGS IN ({among})"
        return Subscription(topic, expression, version, SQL)
    codes = tuple(java_hash(tag) for tag in tags)
    return Subscription(topic, wanted.tags.expression, version, TAG, tuple(tags), codes)


class Subscriptions:
    """The groups of one client and their subscriptions. Safe for threads."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._groups: dict[str, dict[str, Subscription]] = {}
        self._models: dict[str, MessageModel] = {}

    def add(self, group: str, topic: str, wanted: MessageFilter, *, broadcast: bool) -> Subscription:
        """Subscribe a group to a topic, and tell the brokers. Returns the subscription.

        Raises FilterError if a broker does not filter by SQL92, or refuses the expression; not for a topic that does
        not exist yet.
        """
        subscription = subscription_to(topic, wanted)
        self._check(group, subscription)
        with self._lock:
            topics = self._groups.setdefault(group, {})
            topics[topic] = subscription
            if not broadcast:  # brokers make the retry topic for it
                topics.setdefault(RETRY_PREFIX + group, subscription_to(RETRY_PREFIX + group, MessageFilter()))
            self._models[group] = MessageModel.BROADCASTING if broadcast else MessageModel.CLUSTERING
            data = self._data(group)
        self._client.heartbeats.add_consumer(data)
        return subscription

    def remove(self, group: str) -> None:
        """Remove a group, and tell the brokers, which notify its other members."""
        with self._lock:
            known = self._groups.pop(group, None)
        if known is not None:
            self._client.heartbeats.remove_consumer(group)

    def of(self, group: str) -> list[Subscription]:
        """Return the subscriptions of a group of this client."""
        with self._lock:
            return list(self._groups.get(group, {}).values())

    def _data(self, group: str) -> ConsumerData:
        return ConsumerData(
            group,
            ConsumeType.CONSUME_PASSIVELY,
            self._models[group],
            ConsumeFrom.CONSUME_FROM_FIRST_OFFSET,
            tuple(self._groups[group].values()),
        )

    def _check(self, group: str, subscription: Subscription) -> None:
        if subscription.expression_type == TAG:
            return
        body = ClientConfigCheck(self._client.client_id, group, subscription).encode()
        with suppress(UnknownTopic, NameServerUnreachable):  # as with tags, the topic may be made later
            for broker_name in {each.broker_name for each in self._client.routes.read_queues(subscription.topic)}:
                self._check_at(broker_name, group, subscription, body)

    def _check_at(self, broker_name: str, group: str, subscription: Subscription, body: bytes) -> None:
        try:
            address = self._client.brokers.read_address(broker_name)
            self._client.call(address, request(RequestCode.CHECK_CLIENT_CONFIG, body))
        except (BrokerUnreachable, RequestTimedOut) as error:
            sql = subscription.expression
            _log.warning("group %s: broker %s cannot check sql(%r) yet: %s", group, broker_name, sql, error)
        except AnswerError as error:
            if error.code not in (ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED):
                raise
            raise FilterError(
                f"group {group!r}, topic {subscription.topic!r}: the broker refuses "
                f"sql({subscription.expression!r}): {error}; a broker filters by "
                "properties if it runs with enablePropertyFilter=true"
            ) from error


def warn_of_mismatch(client: ClusterClient, group: str, own: Iterable[Subscription]) -> None:
    """Log the topics for which another member of a group has another subscription than this client.

    A broker keeps only the newest subscription of a group to a topic, so members that differ lose messages.
    """
    for subscription in own:
        there = _subscription_at_broker(client, group, subscription.topic)
        if there not in (None, (subscription.expression_type, subscription.expression)):
            _log.warning(
                "group %s, topic %s: another member wants %s, and this one %s %r: messages get lost; use one "
                "expression in all members of a group",
                group, subscription.topic, there, subscription.expression_type, subscription.expression,
            )  # fmt: skip


def _subscription_at_broker(client: ClusterClient, group: str, topic: str) -> tuple[str, str] | None:
    try:
        queues = client.routes.read_queues(topic)
        address = client.brokers.read_address(queues[0].broker_name)
        answer = client.call(address, request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=group))
        there = ConsumerConnection.decode(answer.body).subscriptions.get(topic)
    except (QueueError, IndexError):
        return None
    return None if there is None else (there.expression_type, there.expression)
