"""Group state: what brokers and members know of groups.

Each broker has the offsets of groups in its own queues, and knows the members from heartbeats. Only the members know
the owners of queues; a broker forwards the question to them. [AdminBrokerProcessor]
"""

from __future__ import annotations

import re
from typing import Any, Final

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.groups.member_list import seat_of
from rmqclient.cluster.groups.running_info import queues_of
from rmqclient.remoting.bodies import fastjson
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.table import request
from rmqclient.store import MemberInfo, MessageQueue

_SYSTEM_PREFIX: Final = "CID_RMQ_SYS_"
_PROCESS: Final = re.compile(r"[^@]*@(\d+)")
_ANY_CODE: Final = range(1, 256)


class GroupState:
    """The groups of one cluster, as its brokers know them; names are the application's. Safe for threads."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._url = client.url

    def members(self, group: str) -> list[MemberInfo]:
        """Return the members of a group, one entry for each topic."""
        asked = request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=self._url.wrap(group))
        found: dict[tuple[str, str], MemberInfo] = {}
        for address in self._client.brokers.masters().values():
            answer = self._client.call(address, asked, also=_ANY_CODE)
            if answer.code == ResponseCode.SUCCESS and answer.body:
                for member in self._members_in(group, fastjson.read(answer.body)):
                    found[member.client_id, member.topic] = member
        return [found[each] for each in sorted(found)]

    def _members_in(self, group: str, connection: Any) -> list[MemberInfo]:
        """Return the members of a ConsumerConnection, one for each topic, including the retry topic."""
        table = connection.get("subscriptionTable") or {}
        wanted = {self._url.unwrap(topic): str(each.get("subString", "")) for topic, each in table.items()}
        clients = {str(each["clientId"]) for each in connection.get("connectionSet") or ()}
        return [_member(group, topic, client, text) for client in clients for topic, text in wanted.items()]

    def owners(self, group: str, members: list[MemberInfo]) -> dict[MessageQueue, MemberInfo]:
        """Ask the members of a group for their queues; one that does not answer has none."""
        return {
            queue: member
            for member in members
            for queue in queues_of(self._client, self._url.wrap(group), member.topic, member.client_id)
        }

    def offsets_at(self, broker_name: str) -> dict[tuple[str, MessageQueue], int]:
        """Return a broker's offsets in this namespace, by group and queue."""
        answer = self._client.call(
            self._client.brokers.address(broker_name), request(RequestCode.GET_ALL_CONSUMER_OFFSET)
        )
        body: Any = fastjson.read(answer.body)
        found = {}
        for name, offsets in (body.get("offsetTable") or {}).items():
            topic, _, group = name.partition("@")
            if group and not group.startswith(_SYSTEM_PREFIX) and self._is_named_here(topic, group):
                for queue_id, offset in offsets.items():
                    queue = MessageQueue(self._url.unwrap(topic), int(queue_id), broker_name)
                    found[self._url.unwrap(group), queue] = int(offset)
        return found

    def names_at(self, broker_name: str) -> list[str]:
        """Return the groups for which a broker has settings."""
        answer = self._client.call(
            self._client.brokers.address(broker_name), request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        )
        body: Any = fastjson.read(answer.body)
        names = [str(name) for name in body.get("subscriptionGroupTable") or ()]
        return [self._url.unwrap(name) for name in names if name and self._is_named_here(None, name)]

    def _is_named_here(self, topic: str | None, group: str) -> bool:
        """Whether names on the wire are in the URL's namespace."""
        here = [name for name in (topic, group) if name is not None]
        return all(self._url.wrap(self._url.unwrap(name)) == name for name in here)


def _member(group: str, topic: str, client_id: str, subscription: str) -> MemberInfo:
    number, incarnation = seat_of(client_id).key
    process = _PROCESS.match(client_id)
    return MemberInfo(
        slot=number - 1,
        incarnation=incarnation,
        group=group,
        topic=topic,
        client_id=client_id,
        pid=int(process[1]) if process else 0,
        subscription=subscription,
    )
