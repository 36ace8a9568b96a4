"""Moves: moves groups in queues. Brokers tell running members. [AdminBrokerProcessor.resetOffset]"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple

from rmqclient.backend.group_protocols import Move
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.groups.offsets import BrokerOffsets
from rmqclient.cluster.reading.group_state import GroupState
from rmqclient.cluster.reading.topics import broker_version
from rmqclient.errors import ClusterError, NotOnCluster
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.table import request
from rmqclient.store import MessageQueue

_OF_5: Final = 413  # V5_0_0
_ANY_CODE: Final = range(1, 256)


class _Part(NamedTuple):
    """The part of a move for one group and topic. Names are the application's."""

    group: str
    topic: str
    targets: Mapping[MessageQueue, int]
    at_ms: int | None


class Moves:
    """Moves the groups of one cluster. Safe for threads."""

    def __init__(self, client: ClusterClient, state: GroupState) -> None:
        self._client = client
        self._state = state
        self._url = client.url

    def move(self, move: Move) -> None:
        """Move groups in queues. Brokers tell running members.

        Raises NotOnCluster and moves nothing if members run and a broker is older than 5.0, unless all queues of a
        topic move to the time ``at_ms``.
        """
        moved: dict[tuple[str, str], dict[MessageQueue, int]] = defaultdict(dict)
        for (group, queue), offset in move.offsets.items():
            moved[group, queue.topic][queue] = offset
        running = {group: {member.topic for member in self._state.members(group)} for group, _ in moved}
        masters = self._client.brokers.masters().items()
        versions = {name: broker_version(self._client, address) for name, address in masters}
        parts = [_Part(group, topic, targets, move.at_ms) for (group, topic), targets in moved.items()]
        online = [part for part in parts if part.topic in running[part.group]]
        for part in online:
            self._check_movable(part, versions)
        for part in parts:
            if part in online:
                self._reset(part, versions)
            else:
                for queue, offset in part.targets.items():
                    self.commit(part.group, queue, offset)

    def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set a group's offset in a queue. Raises as a call."""
        BrokerOffsets(self._client, self._url.wrap(group)).set(queue, offset)

    def _check_movable(self, part: _Part, versions: Mapping[str, int]) -> None:
        old = sorted({queue.broker_name for queue in part.targets if versions.get(queue.broker_name, 0) < _OF_5})
        is_whole = set(part.targets) == set(self._client.routes.read_queues(part.topic))
        if old and (part.at_ms is None or not is_whole):
            raise NotOnCluster(
                f"group {part.group!r} has members that run, and broker {old[0]!r} is older than 5.0: it moves them "
                "only to earliest, latest or a time, in all queues of a topic; give one of these, or stop the members"
            )

    def _reset(self, part: _Part, versions: Mapping[str, int]) -> None:
        """Let the brokers move running members."""
        named = {"topic": self._url.wrap(part.topic), "group": self._url.wrap(part.group), "isForce": True}
        for broker_name in {queue.broker_name for queue in part.targets}:
            address = self._client.brokers.address(broker_name)
            there = {queue: offset for queue, offset in part.targets.items() if queue.broker_name == broker_name}
            if versions[broker_name] < _OF_5:
                known = self._state.offsets_at(broker_name)
                for queue, offset in there.items():
                    if (part.group, queue) not in known:
                        self.commit(part.group, queue, offset)  # or the broker answers that there is no such group
                self._invoke(address, timestamp=part.at_ms, **named)
                continue
            for queue, offset in there.items():
                self._invoke(address, timestamp=0, queueId=queue.queue_id, offset=offset, **named)

    def _invoke(self, address: str, **fields: object) -> None:
        wanted = request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, b"", **fields)
        answer = self._client.call(address, wanted, also=_ANY_CODE)
        if answer.code != ResponseCode.SUCCESS:
            raise ClusterError(f"{address} does not move group {fields['group']!r}: {answer.remark}")
