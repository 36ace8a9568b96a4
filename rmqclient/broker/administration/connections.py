"""Connections: connected clients by group. Local members are listed too, with the language PYTHON."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from rmqclient.broker.clients.clients import Clients
from rmqclient.broker.clients.member import Consumer, Producer
from rmqclient.broker.request import Request
from rmqclient.broker.routes import ADMINISTRATOR, Route, of_group, of_topic_and_group
from rmqclient.broker.stored_names import stored_client, stored_group
from rmqclient.local.backend import local_backend
from rmqclient.names import group_and_member
from rmqclient.remoting.bodies import (
    Connection,
    ConsumeFrom,
    ConsumerConnection,
    ConsumeType,
    MessageModel,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
    Subscription,
    fastjson,
)
from rmqclient.remoting.codes import VERSION, Language, RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import HALF_TOPIC, MemberInfo, MessageStore

LOCAL_ADDRESS: Final = "127.0.0.1:0"
"""Address listed for a local member, which has no connection."""


class LocalMembers:
    """Members of groups in processes of this host, without the remote members that the server has seats for."""

    def __init__(self, store: MessageStore, clients: Clients) -> None:
        self._store = store
        self._backend = local_backend(store)
        self._clients = clients

    def of_group(self, group: str) -> list[MemberInfo]:
        """Return the local members of a group; one that consumes several topics occurs once for each of them."""
        remote = {stored_client(each.client_id) for each in self._clients.consumers.of(group)}
        return [
            member for member in self._backend.groups.members(stored_group(group)) if member.client_id not in remote
        ]

    def topics(self, group: str) -> set[str]:
        """Return the topics that local members of a group consume."""
        return {member.topic for member in self.of_group(group)}

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups with a local member that consumes a topic."""
        return {group_and_member(member.group)[0] for member in self._backend.groups.members() if member.topic == topic}

    def subscriptions(self, group: str) -> dict[str, Subscription]:
        """Return the subscriptions of local members of a group, by topic."""
        return {member.topic: Subscription(member.topic, _expression(member)) for member in self.of_group(group)}

    def producers(self) -> dict[str, list[str]]:
        """Return the client ids of local producers of transactions by group; no other producer has a seat."""
        found: dict[str, list[str]] = {}
        for member in self._store.members().roll.all():
            if member.topic == HALF_TOPIC:
                found.setdefault(member.group, []).append(member.client_id)
        return found


class Connections:
    """Answers requests about connected clients. Runs on the event loop's thread, because all data is in memory."""

    def __init__(self, clients: Clients, local: LocalMembers) -> None:
        self._clients = clients
        self._local = local

    def routes(self) -> Iterable[Route]:
        """Declare requests about clients. Producer groups have no permissions, so only administrators see them."""
        yield Route(RequestCode.GET_CONSUMER_CONNECTION_LIST, self._consumers, needs=of_group(), writes=False)
        yield Route(RequestCode.GET_PRODUCER_CONNECTION_LIST, self._producers, needs=ADMINISTRATOR, writes=False)
        yield Route(RequestCode.GET_ALL_PRODUCER_INFO, self._all_producers, needs=ADMINISTRATOR, writes=False)
        yield Route(
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
            self._subscription,
            needs=of_topic_and_group("group"),
            writes=False,
        )

    def _consumers(self, request: Request) -> Frame:
        group = request.fields["consumerGroup"]
        remote, local = self._clients.consumers.of(group), self._local.of_group(group)
        if not remote and not local:
            return request.failure(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        subscriptions = {**self._local.subscriptions(group), **self._clients.subscriptions(group)}
        first = remote[0] if remote else None
        is_broadcast = first.is_broadcast if first else any(group_and_member(each.group)[1] for each in local)
        connected = ConsumerConnection(
            (*map(_connection, remote), *_local_connections({member.client_id for member in local})),
            {topic: subscriptions[topic] for topic in sorted(subscriptions)},
            first.consume_type if first else ConsumeType.CONSUME_PASSIVELY,
            MessageModel.BROADCASTING if is_broadcast else MessageModel.CLUSTERING,
            first.consume_from if first else ConsumeFrom.CONSUME_FROM_FIRST_OFFSET,
        )
        return request.success(connected.encode())

    def _producers(self, request: Request) -> Frame:
        group = request.fields["producerGroup"]
        remote, local = self._clients.producers.of(group), self._local.producers().get(group, [])
        if not remote and not local:
            return request.failure(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        return request.success(ProducerConnection((*map(_connection, remote), *_local_connections(local))).encode())

    def _all_producers(self, request: Request) -> Frame:
        now, now_ms = self._clients.ran_s(), time.time_ns() // 1_000_000
        groups = {
            group: tuple(
                ProducerInfo(
                    each.client_id,
                    str(each.peer.remote),
                    _language(each.language),
                    each.version,
                    now_ms - int((now - each.beat_at) * 1000),
                )
                for each in self._clients.producers.of(group)
            )
            for group in self._clients.producers.groups()
        }
        for group, ids in self._local.producers().items():
            local = tuple(ProducerInfo(each, LOCAL_ADDRESS, Language.PYTHON.name, VERSION, now_ms) for each in ids)
            groups[group] = (*groups.get(group, ()), *local)
        return request.success(ProducerTable(groups).encode())

    def _subscription(self, request: Request) -> Frame:
        """Answer a group's subscription to a topic, in the form of 5.x. [QuerySubscriptionResponseBody]"""
        group, topic = request.fields["group"], request.fields.get("topic", "")
        found = self._clients.subscription(group, topic) or self._local.subscriptions(group).get(topic)
        body: dict[str, object] = {"group": group, "topic": topic}
        if found is not None:
            body["subscriptionData"] = found.to_json()
        return request.success(fastjson.write(body))


def subscribed(clients: Clients, local: LocalMembers, group: str) -> set[str]:
    """Return the topics that members of a group consume now; for the thread of the event loop."""
    return {*clients.subscriptions(group), *local.topics(group)}


def _connection(member: Consumer | Producer) -> Connection:
    return Connection(member.client_id, str(member.peer.remote), _language(member.language), member.version)


def _local_connections(client_ids: Iterable[str]) -> list[Connection]:
    return [Connection(each, LOCAL_ADDRESS, Language.PYTHON.name, VERSION) for each in sorted(client_ids)]


def _language(number: int) -> str:
    try:
        found = Language(number)
    except ValueError:
        found = Language.OTHER
    return (Language.OTHER if found is Language.UNKNOWN else found).name


def _expression(member: MemberInfo) -> str:
    """The tags that a local member's text begins with; ``*`` for a retry topic."""
    words = member.subscription.partition(";")[0].removeprefix("tags ").strip()
    return words or "*"
