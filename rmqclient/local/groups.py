"""Local groups: the members of a store's groups, and their bells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from rmqclient.backend.group_protocols import Grant, Seat, Terms
from rmqclient.names import group_and_member
from rmqclient.store import (
    Bell,
    Interrupted,
    LentMessages,
    Member,
    MemberInfo,
    MessageQueue,
    MessageStore,
    QueueGrant,
    Running,
    Strained,
)


class LocalMembers:
    """The memberships of one consumer in the groups of a store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._table = store.members()

    @property
    def bell(self) -> Bell:
        """Rings when a member joins or leaves, when a topic is made, and when another member wakes one of these."""
        return self._table.bell

    def join(self, group: str, topic: str, client_id: str, terms: Terms) -> LocalMembership:
        """Become a member; leases exclude other members. Raises ReadOnlyReplica."""
        self._store.life.check_primary()
        member = self._table.join(group, topic, client_id, terms.text)
        return LocalMembership(self._store, member, terms)

    def close(self) -> None:
        """Do nothing: each member frees its own slot."""


class LocalMembership:
    """One member of a group of a store, for one topic."""

    def __init__(self, store: MessageStore, member: Member, terms: Terms) -> None:
        self.group = member.group
        self.topic = member.topic
        self.client_id = member.client_id
        self.bell = store.arrival_bell(member.arrival_lane)
        self._store = store
        self._member = member
        self._tags = terms.wanted.tag_set
        self._lends = not terms.ordered
        self._lease_ms = terms.lease_ms
        self._table = member.table
        self._numbered: Sequence[MessageQueue] = ()
        self._numbers: list[int] = []
        self.beat = member.beat
        self.show_kept = member.show_kept
        self.show_free = member.show_free
        self.leave = member.leave

    def watch(self) -> bool:
        """Check whether the member that this one watches has died. If so, wake all members and return True."""
        return self._table.watch(self._member.slot)

    def counted(self) -> tuple[MemberInfo, ...]:
        """Return the members that the queues are allocated to, sorted by client id.

        Raises StoreFenced when another store took the place of this one.
        """
        self._store.life.check_primary()
        return self._table.roll.counted(self.group, self.topic, self._lease_ms)

    def owners(self, queues: Sequence[MessageQueue]) -> tuple[tuple[int, int], ...]:
        """Return the key of each queue's owner, by one read of shared memory."""
        if queues != self._numbered:
            self._numbered, self._numbers = queues, [self._member.queue_slot(queue).number for queue in queues]
        pairs = list(zip(*map(self._store.groups.column, ("owner", "owner_incarnation")), strict=True))
        return tuple([pairs[number] for number in self._numbers])

    def grant(self, queue: MessageQueue) -> QueueGrant | None:
        """Become the owner of a queue and return its grant; None if it is not free."""
        slot = self._member.queue_slot(queue)
        epoch = self._member.take(slot, self._lease_ms, lends=self._lends)
        return None if epoch is None else self._store.grants.grant(slot, epoch, self._tags)

    def renew(self, grant: Grant) -> bool:
        """Extend the lease of a queue of this member. False if the queue has another owner. Raises StoreBusy."""
        return cast("QueueGrant", grant).renew(self._lease_ms)

    def interrupted(self, grant: Grant) -> dict[int, list[Interrupted]]:
        """Return the deaths before this grant by the queue offset of their message, the oldest first."""
        return self._table.running.interrupted(self._member.queue_slot(grant.queue))

    def lent(self, grant: Grant) -> LentMessages:
        """Return the messages of a new grant that still run in members that had the queue before."""
        return LentMessages(
            self._table.lending, self._member.queue_slot(grant.queue), cast("QueueGrant", grant), self._lease_ms
        )

    def strained(self) -> Strained:
        """Return which of the :meth:`counted` members are busy, and which help them."""
        return self._table.roll.strained(self.group, self.topic, self._lease_ms)

    def tell(self, seats: Iterable[Seat]) -> None:
        """Wake these members, so that they look at once."""
        self._table.wake(cast("Iterable[MemberInfo]", seats))

    def topics_of_others(self) -> set[str]:
        """Return the topics that other members of the group take."""
        members = self._store.members().roll.all()  # by a table of its own, because any thread may ask
        return {each.topic for each in members if each.group == self.group and each.client_id != self.client_id}

    def claim(self, count: int) -> list[Running]:
        """Take a slot for each of ``count`` handler threads. Raises TableFull, StoreBusy."""
        handler = group_and_member(self.group)[0], self.topic
        return self._table.running.claim(self._member.slot, self._member.incarnation, count, handler)

    def stay_behind(self) -> bool:
        """Leave the allocation, but keep queues that were not released while they are renewed; return True."""
        self._member.retire()
        return True
