"""Groups: progress and members of groups, and moving groups, for callers that are not members.

Each broker has the offsets of groups in its own queues, and knows the members from heartbeats. Only the members know
the owners of queues; a broker forwards the question to them. [AdminBrokerProcessor]
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.groups.beginning import begin_group
from rmqclient.cluster.groups.member_list import seat_of
from rmqclient.cluster.groups.members import ClusterMembers
from rmqclient.cluster.groups.offsets import BrokerOffsets, committed_offset, oldest_offset
from rmqclient.cluster.groups.running_info import queues_of
from rmqclient.cluster.reading.queues import Queues
from rmqclient.cluster.reading.topics import broker_version
from rmqclient.errors import ClusterError, NotOnCluster
from rmqclient.names import RETRY_PREFIX
from rmqclient.remoting.bodies import fastjson
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import GroupNotFound
from rmqclient.remoting.table import request
from rmqclient.store import MemberInfo, MessageQueue
from rmqclient.store.errors import QueueOwned, UnknownTopic
from rmqclient.store.observe.observation import GroupQueue
from rmqclient.store.observe.summary import Group, summaries

_OF_5: Final = 413  # V5_0_0
_SYSTEM_PREFIX: Final = "CID_RMQ_SYS_"
_PROCESS: Final = re.compile(r"[^@]*@(\d+)")
_ANY_CODE: Final = range(1, 256)


class Groups:
    """The groups of one cluster, by the application's names. Safe for threads."""

    def __init__(self, client: ClusterClient, queues: Queues) -> None:
        self._client = client
        self._queues = queues
        self._url = client.url

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return a group's offset in a queue; None if it never committed there. Raises UnknownTopic."""
        self._queues.check(queue)
        offset = committed_offset(self._client, self._url.wrap(group), queue)
        if offset == 0 and (group, queue) not in self._offsets_at(queue.broker_name):
            return None  # 4.9 answers 0 for an unknown group, too
        return offset

    def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set a group's offset in a queue. Raises QueueOwned while members of the group consume the topic."""
        self._queues.check(queue)
        for member in self.members(group):
            if member.topic == queue.topic:
                raise QueueOwned(
                    f"group {group!r}: member {member.client_id!r} consumes {queue.topic!r}, and it or another member "
                    "keeps the offset of the queue: commit in another group, or move this one with `rmq group seek`"
                )
        self._commit(group, queue, offset)

    def seek(self, offsets: Mapping[tuple[str, MessageQueue], int], *, at_ms: int | None = None) -> None:
        """Move groups in queues. Brokers tell running members.

        Raises NotOnCluster and moves nothing if members run and a broker is older than 5.0, unless all queues of a
        topic move to the time ``at_ms``: 0 for their begin, -1 for their end.
        """
        moved: dict[tuple[str, str], dict[MessageQueue, int]] = defaultdict(dict)
        for (group, queue), offset in offsets.items():
            moved[group, queue.topic][queue] = offset
        running = {group: {member.topic for member in self.members(group)} for group, _ in moved}
        online = {(group, topic) for group, topic in moved if topic in running[group]}
        versions = {name: broker_version(self._client, address) for name, address in self._masters().items()}
        for group, topic in online:
            self._check_movable(group, topic, moved[group, topic], at_ms, versions)
        for (group, topic), targets in moved.items():
            if (group, topic) in online:
                self._reset(group, topic, targets, at_ms, versions)
            else:
                for queue, offset in targets.items():
                    self._commit(group, queue, offset)

    def all(self) -> list[Group]:
        """Return every group as its brokers know it, without the owners of queues and the messages that wait."""
        return self._found(None)

    def find(self, group: str) -> Group | None:
        """Return one group; its members report which queues they have."""
        return next((each for each in self._found(group) if each.group == group), None)

    def _found(self, group: str | None) -> list[Group]:
        found: dict[tuple[str, MessageQueue], int] = {}
        for broker_name in self._masters():
            found |= self._offsets_at(broker_name)
        wanted = {each: offset for each, offset in found.items() if group in (None, each[0])}
        present = {each: offset for each, offset in wanted.items() if self._is_there(each[1])}
        members, owners = self.members(group), dict[MessageQueue, MemberInfo]()
        if group is not None:
            present = self._begun(group, members) | present
            owners = self._owners(group, members)
        spans = {queue: self._queues.span(queue) for queue in {queue for _, queue in present}}
        queues = [
            GroupQueue(name, queue, offset, *spans[queue], owners.get(queue))
            for (name, queue), offset in sorted(present.items(), key=lambda each: (each[0][0], each[0][1].sort_key))
        ]
        return summaries(queues, members)

    def members(self, group: str | None = None) -> list[MemberInfo]:
        """Return the members of a group, or of every group, from brokers."""
        if group is not None:
            return self._members_of(group)
        names = {name for broker_name in self._masters() for name in self._known_at(broker_name)}
        return [member for name in sorted(names) for member in self._members_of(name)]

    def memberships(self) -> ClusterMembers:
        """Return the memberships of one consumer."""
        return ClusterMembers(self._url)

    def begin(self, group: str, offsets: Mapping[MessageQueue, int]) -> bool:
        """Set the start offsets of a new group; False if it already has one of the queues."""
        return begin_group(self._client, self._url.wrap(group), offsets)

    def remove(self, group: str) -> None:
        """Remove a group as ``mqadmin deleteSubGroup`` does, except for its dead letters. [DeleteSubGroup]

        Brokers delete the group's settings and offsets. Brokers and name servers delete its retry topic, with the
        messages that wait there. Raises the error of a broker that refuses or cannot be reached; brokers before it, in
        the order of their names, have removed the group then. Removing it twice is no error.
        """
        name = self._url.wrap(group)
        forget = request(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=name, removeOffset=True, cleanOffset=True)
        forget_topic = request(RequestCode.DELETE_TOPIC_IN_BROKER, topic=f"{RETRY_PREFIX}{name}")
        for address in self._masters().values():
            self._client.call(address, forget)
            self._client.call(address, forget_topic)
        servers = self._client.name_servers
        servers.call_each(request(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic=f"{RETRY_PREFIX}{name}"))
        self._client.routes.forget(f"{RETRY_PREFIX}{group}")

    def set_paused(self, *_: object, paused: bool) -> NoReturn:
        """Raise NotOnCluster: brokers cannot pause a group in a topic."""
        what = "paused" if paused else "resumed"
        raise NotOnCluster(f"a group cannot be {what} on a cluster, whose brokers have no such state: stop its workers")

    def _members_of(self, group: str) -> list[MemberInfo]:
        asked = request(RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup=self._url.wrap(group))
        found: dict[tuple[str, str], MemberInfo] = {}
        for address in self._masters().values():
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

    def _begun(self, group: str, members: list[MemberInfo]) -> dict[tuple[str, MessageQueue], int]:
        """Return the oldest offset of each queue of the members' topics, where a group without an offset begins.

        The retry topic may not exist yet.
        """
        topics = {member.topic for member in members}
        queues = [queue for topic in topics for queue in self._queues_of(topic)]
        return {(group, queue): oldest_offset(self._client, queue) for queue in queues}

    def _owners(self, group: str, members: list[MemberInfo]) -> dict[MessageQueue, MemberInfo]:
        return {
            queue: member
            for member in members
            for queue in queues_of(self._client, self._url.wrap(group), member.topic, member.client_id)
        }

    def _offsets_at(self, broker_name: str) -> dict[tuple[str, MessageQueue], int]:
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

    def _known_at(self, broker_name: str) -> list[str]:
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

    def _is_there(self, queue: MessageQueue) -> bool:
        return queue in self._queues_of(queue.topic)

    def _queues_of(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic; empty for a missing one."""
        try:
            return self._client.routes.read_queues(topic)
        except UnknownTopic:
            return []

    def _commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        at_brokers = BrokerOffsets(self._client, self._url.wrap(group))
        try:
            at_brokers.commit(queue, offset)
        except GroupNotFound:  # a 5.x broker knows a group only after a pull or a heartbeat
            address = self._client.brokers.read_address(queue.broker_name)
            pull = self._queues.pull(queue, 0, 1, group=self._url.wrap(group))
            self._client.call(address, pull, also=_ANY_CODE)
            at_brokers.commit(queue, offset)

    def _check_movable(
        self,
        group: str,
        topic: str,
        targets: Mapping[MessageQueue, int],
        at_ms: int | None,
        versions: Mapping[str, int],
    ) -> None:
        old = sorted({queue.broker_name for queue in targets if versions.get(queue.broker_name, 0) < _OF_5})
        is_whole = set(targets) == set(self._client.routes.read_queues(topic))
        if old and (at_ms is None or not is_whole):
            raise NotOnCluster(
                f"group {group!r} has members that run, and broker {old[0]!r} is older than 5.0: it moves them only to "
                "earliest, latest or a time, in all queues of a topic; give one of these, or stop the members"
            )

    def _reset(
        self,
        group: str,
        topic: str,
        targets: Mapping[MessageQueue, int],
        at_ms: int | None,
        versions: Mapping[str, int],
    ) -> None:
        """Let the brokers move running members."""
        named = {"topic": self._url.wrap(topic), "group": self._url.wrap(group), "isForce": True}
        for broker_name in {queue.broker_name for queue in targets}:
            address = self._client.brokers.address(broker_name)
            if versions[broker_name] < _OF_5:
                known = self._offsets_at(broker_name)
                for queue, offset in targets.items():
                    if queue.broker_name == broker_name and (group, queue) not in known:
                        self._commit(group, queue, offset)  # or the broker answers that the group does not exist
                self._invoke(address, timestamp=at_ms, **named)
                continue
            for queue, offset in targets.items():
                if queue.broker_name == broker_name:
                    self._invoke(address, timestamp=0, queueId=queue.queue_id, offset=offset, **named)

    def _invoke(self, address: str, **fields: object) -> None:
        wanted = request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, b"", **fields)
        answer = self._client.call(address, wanted, also=_ANY_CODE)
        if answer.code != ResponseCode.SUCCESS:
            raise ClusterError(f"{address} does not move group {fields['group']!r}: {answer.remark}")

    def _masters(self) -> dict[str, str]:
        return self._client.brokers.masters()


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
