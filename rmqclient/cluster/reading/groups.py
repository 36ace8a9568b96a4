"""Groups: progress and members of groups, for callers that are not members.

``group_state`` has what brokers know of groups, and ``moves`` moves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.groups.beginning import begin_group
from rmqclient.cluster.groups.members import ClusterMembers
from rmqclient.cluster.groups.offsets import committed_offset, oldest_offset
from rmqclient.cluster.reading.group_state import GroupState
from rmqclient.cluster.reading.moves import Moves
from rmqclient.cluster.reading.queues import Queues
from rmqclient.errors import NotOnCluster
from rmqclient.names import RETRY_PREFIX
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.table import request
from rmqclient.store import MemberInfo, MessageQueue
from rmqclient.store.errors import QueueOwned, UnknownTopic
from rmqclient.store.observe.observation import GroupQueue
from rmqclient.store.observe.summary import Group, summaries


class Groups:
    """The groups of one cluster, by the application's names. Safe for threads."""

    def __init__(self, client: ClusterClient, queues: Queues) -> None:
        self._client = client
        self._queues = queues
        self._url = client.url
        self._state = GroupState(client)
        self._moves = Moves(client, self._state)
        self.seek = self._moves.move

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return a group's offset in a queue; None if it never committed there. Raises UnknownTopic."""
        self._queues.check(queue)
        offset = committed_offset(self._client, self._url.wrap(group), queue)
        if offset == 0 and (group, queue) not in self._state.offsets_at(queue.broker_name):
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
        self._moves.commit(group, queue, offset)

    def all(self) -> list[Group]:
        """Return every group as its brokers know it, without the owners of queues and the messages that wait."""
        return self._found(None)

    def find(self, group: str) -> Group | None:
        """Return one group; its members report which queues they have."""
        return next((each for each in self._found(group) if each.group == group), None)

    def _found(self, group: str | None) -> list[Group]:
        found: dict[tuple[str, MessageQueue], int] = {}
        for broker_name in self._client.brokers.masters():
            found |= self._state.offsets_at(broker_name)
        wanted = {each: offset for each, offset in found.items() if group in (None, each[0])}
        present = {each: offset for each, offset in wanted.items() if self._is_there(each[1])}
        members, owners = self.members(group), dict[MessageQueue, MemberInfo]()
        if group is not None:
            present = self._begun(group, members) | present
            owners = self._state.owners(group, members)
        spans = {queue: self._queues.span(queue) for queue in {queue for _, queue in present}}
        queues = [
            GroupQueue(name, queue, offset, *spans[queue], owners.get(queue))
            for (name, queue), offset in sorted(present.items(), key=lambda each: (each[0][0], each[0][1].sort_key))
        ]
        return summaries(queues, members)

    def members(self, group: str | None = None) -> list[MemberInfo]:
        """Return the members of a group, or of every group, from brokers."""
        if group is not None:
            return self._state.members(group)
        names = {name for broker_name in self._client.brokers.masters() for name in self._state.names_at(broker_name)}
        return [member for name in sorted(names) for member in self._state.members(name)]

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
        for address in self._client.brokers.masters().values():
            self._client.call(address, forget)
            self._client.call(address, forget_topic)
        servers = self._client.name_servers
        servers.call_each(request(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic=f"{RETRY_PREFIX}{name}"))
        self._client.routes.forget(f"{RETRY_PREFIX}{group}")

    def set_paused(self, *_: object, paused: bool) -> NoReturn:
        """Raise NotOnCluster: brokers cannot pause a group in a topic."""
        what = "paused" if paused else "resumed"
        raise NotOnCluster(f"a group cannot be {what} on a cluster, whose brokers have no such state: stop its workers")

    def _begun(self, group: str, members: list[MemberInfo]) -> dict[tuple[str, MessageQueue], int]:
        """Return the oldest offset of each queue of the members' topics, where a group without an offset begins.

        The retry topic may not exist yet.
        """
        topics = {member.topic for member in members}
        queues = [queue for topic in topics for queue in self._queues_of(topic)]
        return {(group, queue): oldest_offset(self._client, queue) for queue in queues}

    def _is_there(self, queue: MessageQueue) -> bool:
        return queue in self._queues_of(queue.topic)

    def _queues_of(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic; empty for a missing one."""
        try:
            return self._client.routes.read_queues(topic)
        except UnknownTopic:
            return []
