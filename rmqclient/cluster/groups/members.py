"""Members: the memberships of one consumer in the groups of a cluster.

Brokers identify a member by its client id and by the connection of its heartbeats. So the memberships under one client
id share a client; a broadcast handler has the client id of its member name. Two timer threads do the periodic work. One
of them never waits for a broker, so that neither a silent broker nor a silent member delays the renewal of a lock:

==============  ======================================  =====================================================
``rmq-locks``   every second                            commits new offsets
..              every second                            renews locks of ordered queues whose broker was lost
..              every 20 s, 2 s after a failure         renews locks
``rmq-keeper``  every 20 s, and when a broker says so   asks brokers for the members of each group
..              after pauses                            continues pulls
==============  ======================================  =====================================================
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from rmqclient.backend.group_protocols import Terms
from rmqclient.cluster.address.state_directory import state_directory
from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.groups.bells import Bells, ClusterBell
from rmqclient.cluster.groups.journal import Journal
from rmqclient.cluster.groups.locks import RENEW_EVERY_S, QueueLocks
from rmqclient.cluster.groups.member_list import MemberList
from rmqclient.cluster.groups.member_locks import MemberLocks
from rmqclient.cluster.groups.membership import ClusterMembership
from rmqclient.cluster.groups.offsets import BrokerOffsets, FileOffsets, Offsets, offsets_path, oldest_offset
from rmqclient.cluster.groups.running_info import answer_brokers, queues_of
from rmqclient.cluster.groups.subscriptions import Subscriptions, warn_of_mismatch
from rmqclient.cluster.groups.timer_thread import TimerThread, safely
from rmqclient.errors import QueueError
from rmqclient.names import group_and_member
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields
from rmqclient.store import MessageQueue
from rmqclient.store.threads.logs import Log

COMMIT_EVERY_S = 1.0
"""Seconds between two commits; messages finished since the last one are repeated after a kill. RocketMQ: 5 s
[persistConsumerOffsetInterval], and with each pull."""
LOOK_EVERY_S = 20.0
"""Seconds between two looks at the members of groups. [rocketmq.client.rebalance.waitInterval]"""

_SHORTEST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0

_log = Log(__name__)


def pause_s(took_s: float) -> float:
    """Return the seconds to wait after a question about members that took ``took_s``; at most 1.

    When thousands of members start, each of them is told of every other. So busy brokers are asked less often.
    [5.x: 1 s, rocketmq.client.rebalance.minInterval]
    """
    return min(max(_SHORTEST_PAUSE_S, 20 * took_s), _LONGEST_PAUSE_S)


class ClusterMembers:
    """The memberships of one consumer. ``join`` is for one thread."""

    def __init__(self, url: ClusterURL) -> None:
        self.bell = ClusterBell()
        """Rings when the members of a group have changed or a queue was lost."""
        self._url = url
        self._bells = Bells()
        self._numbers: list[tuple[str, MessageQueue]] = []
        self._clients: dict[str, _Client] = {}
        self._timers: TimerThread | None = None
        self._lock_timers: TimerThread | None = None
        self._closed = False

    def join(self, group: str, topic: str, client_id: str, terms: Terms) -> ClusterMembership:
        """Become a member; see :meth:`rmqclient.backend.group_protocols.Members.join`.

        Brokers do not compare subscriptions: a mismatch is logged. Raises FilterError if a broker refuses the SQL
        expression, ClientIdInUse if another process of this host is the same member of a broadcast group,
        NameServerUnreachable, OSError for the state directory.
        """
        name, member = group_and_member(group)
        if self._timers is None or self._lock_timers is None:
            self._timers, self._lock_timers = self._asking(), self._locking()
        client = self._clients.get(client_id)
        if client is None:
            client = self._clients[client_id] = _Client(
                self._url, client_id, self._timers, self._lock_timers, self._numbers, self.bell.ring
            )
        return client.join(name, topic, terms, self._bells, member)

    def close(self) -> None:
        """Commit, and leave the cluster. Closing twice does nothing."""
        if self._timers is not None and self._lock_timers is not None and not self._closed:
            self._closed = True
            self._timers.close()
            self._lock_timers.close()
            for client in self._clients.values():
                client.close()

    def _asking(self) -> TimerThread:
        timers = TimerThread("rmq-keeper")
        timers.every(LOOK_EVERY_S, self._look)
        return timers

    def _locking(self) -> TimerThread:
        timers = TimerThread("rmq-locks")
        timers.every(RENEW_EVERY_S, self._each_locks(lambda locks: locks.renew()))
        timers.every(COMMIT_EVERY_S, self._each_locks(lambda locks: locks.renew_forgotten()))
        timers.every(COMMIT_EVERY_S, self._each(ClusterMembership.commit_soon))
        return timers

    def _each(self, errand: Callable[[ClusterMembership], None]) -> Callable[[], None]:
        def run() -> None:
            for client in list(self._clients.values()):
                for membership in client.memberships:
                    safely(partial(errand, membership))

        return run

    def _each_locks(self, errand: Callable[[MemberLocks], None]) -> Callable[[], None]:
        return self._each(lambda membership: None if membership.locks is None else errand(membership.locks))

    def _look(self) -> None:
        for client in list(self._clients.values()):
            safely(client.look)


class _Group:
    """One client's participation in one group."""

    def __init__(self, client: ClusterClient, name: str, offsets: Offsets, *, broadcast: bool) -> None:
        self.offsets = offsets
        self.members = None if broadcast else MemberList(client, name)
        self.memberships: list[ClusterMembership] = []
        self.is_asked_for_soon = False
        """Whether a question for its members is scheduled."""
        self.not_before = 0.0
        """Monotonic seconds before which a notice leads to no question."""


class _Client:
    """One client id: its connections and groups."""

    def __init__(
        self,
        url: ClusterURL,
        client_id: str,
        timers: TimerThread,
        lock_timers: TimerThread,
        numbers: list[tuple[str, MessageQueue]],
        changed: Callable[[], None],
    ) -> None:
        self._client = ClusterClient(url, client_id)
        self._url = url
        self._timers = timers
        self._lock_timers = lock_timers
        self._numbers = numbers
        self._changed = changed
        self._numbering = threading.Lock()
        self._subscriptions = Subscriptions(self._client)
        self._journal = Journal(state_directory() / "running", self._client.client_id, numbers.__getitem__)
        self._groups: dict[str, _Group] = {}
        self._client.requests.on(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._notified)
        answer_brokers(self._client, self._subscriptions, self._memberships_of)

    @property
    def memberships(self) -> list[ClusterMembership]:
        """The memberships in all groups."""
        return [each for group in list(self._groups.values()) for each in list(group.memberships)]

    def join(self, name: str, topic: str, terms: Terms, bells: Bells, member: str | None) -> ClusterMembership:
        wire_name = self._url.wrap(name)
        group = self._groups.get(wire_name)
        if group is None:
            offsets = self._offsets(wire_name, member)
            group = self._groups[wire_name] = _Group(self._client, wire_name, offsets, broadcast=member is not None)
        with suppress(QueueError):  # a missing topic is looked for again at each step
            self._client.routes.of(topic)
        wanted, ordered = terms.wanted, terms.ordered
        sent = self._subscriptions.add(wire_name, self._url.wrap(topic), wanted, broadcast=member is not None)
        if group.members is not None:
            group.members.topics.add(topic)
        membership = ClusterMembership(
            self._client,
            self._timers,
            self._lock_timers,
            wire_name,
            topic,
            sent,
            wanted=wanted,
            ordered=ordered,
            members=group.members,
            locks=None if member is not None else QueueLocks(self._client, wire_name, ordered=ordered),
            offsets=group.offsets,
            journal=self._journal,
            bells=bells,
            queue_number=self._number,
            changed=self._changed,
            left=self._leave,
        )
        group.memberships.append(membership)
        return membership

    def look(self) -> None:
        """Ask for the members of each group, and compare their subscriptions."""
        for name, group in list(self._groups.items()):
            safely(partial(self._ask, name, group))
            if group.members is not None:
                warn_of_mismatch(self._client, name, self._subscriptions.of(name))

    def close(self) -> None:
        """Commit, and leave every group."""
        for group in self._groups.values():
            for membership in list(group.memberships):
                membership.commit()
            if isinstance(group.offsets, FileOffsets):
                group.offsets.close()
        for name in list(self._groups):
            self._subscriptions.remove(name)
        self._journal.close()
        self._client.close()

    def _offsets(self, name: str, member: str | None) -> Offsets:
        if member is None:
            return BrokerOffsets(self._client, name)
        path = offsets_path(self._url.name_servers, member, name)
        return FileOffsets(path, lambda queue: oldest_offset(self._client, queue))

    def _leave(self, membership: ClusterMembership) -> None:
        group = self._groups[membership.group]
        group.memberships.remove(membership)
        if not group.memberships:
            self._subscriptions.remove(membership.group)

    def _notified(self, notice: Frame, address: str) -> None:
        """Take a broker's notice of changed members. All brokers send it; one question is enough."""
        del address
        name = request_fields(notice)["consumerGroup"]
        group = self._groups.get(name)
        if group is not None and not group.is_asked_for_soon:
            group.is_asked_for_soon = True
            delay_s = max(0.0, group.not_before - time.monotonic())
            self._timers.after(delay_s, lambda: self._ask_as_notified(name, group))

    def _ask_as_notified(self, name: str, group: _Group) -> None:
        group.is_asked_for_soon = False  # a later notice may be of a change that the answer does not have
        begun = time.monotonic()
        self._ask(name, group)
        ended = time.monotonic()
        group.not_before = ended + pause_s(ended - begun)

    def _ask(self, name: str, group: _Group) -> None:
        if group.members is None or not group.memberships:
            return
        has_changed = group.members.ask()
        if any(each.is_sticky for each in group.memberships):
            self._ask_for_owners(name, group, [seat.client_id for seat in group.members.seats])
        if has_changed:
            _log.info("group %s has %d members", name, len(group.members.seats))
            self._changed()

    def _ask_for_owners(self, name: str, group: _Group, clients: list[str]) -> None:
        others = [client_id for client_id in clients if client_id != self._client.client_id]
        for membership in group.memberships:
            seen: dict[MessageQueue, str] = {}
            for client_id in others:
                queues = queues_of(self._client, name, membership.topic, client_id)
                seen |= dict.fromkeys(queues, client_id)
            membership.owners_seen = seen

    def _memberships_of(self, group: str) -> list[ClusterMembership]:
        known = self._groups.get(group)
        return [] if known is None else list(known.memberships)

    def _number(self, group: str, queue: MessageQueue) -> int:
        with self._numbering:
            key = (group, queue)
            if key in self._numbers:
                return self._numbers.index(key)
            self._numbers.append(key)
            return len(self._numbers) - 1
