"""Local groups: the groups of a store, their members, and the bells of these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from rmqclient.backend.group_protocols import Grant, Seat, Terms
from rmqclient.names import RETRY_PREFIX, group_and_member
from rmqclient.store import (
    HALF_TOPIC,
    Bell,
    Interrupted,
    Member,
    MemberInfo,
    MessageQueue,
    MessageStore,
    QueueGrant,
    Running,
    clock,
    layout,
)
from rmqclient.store.errors import QueueError, QueueOwned, StoreUnusable
from rmqclient.store.observe.reading import Reading, Unreadable
from rmqclient.store.observe.summary import Group, groups_of
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class LocalGroups:
    """The :class:`rmqclient.backend.group_protocols.Groups` of a store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def all(self) -> list[Group]:
        """Return every group. Words are read without a lock."""
        self._store.check_usable()
        try:
            with Reading(str(self._store.root)) as reading:
                return groups_of(reading.observe(wall_ms=clock.wall_ms(), ages=0))
        except Unreadable as error:
            raise StoreUnusable(str(error)) from error

    def find(self, group: str) -> Group | None:
        """Return one of :meth:`all`, which take no longer than one."""
        return next((each for each in self.all() if each.group == group), None)

    def members(self, group: str | None = None) -> list[MemberInfo]:
        """Return the living members. Those for the topic of half messages are transaction producers."""
        members = [member for member in self._store.members().all() if member.topic != HALF_TOPIC]
        return [member for member in members if group in (None, group_and_member(member.group)[0])]

    def memberships(self) -> LocalMembers:
        """Return the memberships of one consumer."""
        return LocalMembers(self._store)

    def committed_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return a group's offset in a queue."""
        store = self._usable()
        slot = store.groups.find(group, store.topics.slot(queue))
        return None if slot is None else slot.finished_to

    def commit(self, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Set a group's offset in a queue."""
        store = self._usable()
        store.check_primary()
        slot = store.groups.find_or_add(group, store.topics.slot(queue), queue_offset)
        with slot.locked(store.config.lock_timeout_ms):
            owner = store.members().owner(slot)
            if owner is not None:
                raise QueueOwned(
                    f"group {group!r}: queue {queue.queue_id} of {queue.topic!r} is owned by member "
                    f"{owner.client_id!r} (process {owner.pid}), which keeps its offset: commit in another group, or "
                    "move this one with `rmq group seek`"
                )
            slot.seek(queue_offset)

    def begin(self, group: str, offsets: Mapping[MessageQueue, int]) -> bool:
        """Set the start offsets of a new group; False if it has begun."""
        store = self._usable()
        store.check_primary()
        begun = store.groups.begin(group, {store.topics.slot(queue): offset for queue, offset in offsets.items()})
        if begun:
            try:
                store.persist_offsets()
            except QueueError as error:  # after a power cut the group would begin again, and later
                _log.error("group %s: where it began is not on the disk yet, which is tried again: %s", group, error)
        return begun

    def seek(self, offsets: Mapping[tuple[str, MessageQueue], int], *, at_ms: int | None = None) -> None:
        """Move groups in queues."""
        del at_ms
        store = self._usable()
        store.check_primary()
        for (group, queue), offset in offsets.items():
            slot = store.groups.find_or_add(group, store.topics.slot(queue), offset)
            with slot.locked(store.config.lock_timeout_ms):
                slot.seek(offset)
        store.state.signal_membership()
        store.persist_offsets()

    def remove(self, group: str) -> None:
        """Remove a group, all its broadcast members, and the messages in its retry topic."""
        store = self._usable()
        store.check_primary()
        names = {slot.group for slot in store.groups if group_and_member(slot.group)[0] == group}
        store.forget_groups(names | {group})
        store.topics.remove(RETRY_PREFIX + group)

    def set_paused(self, group_queues: Iterable[tuple[str, MessageQueue]], *, paused: bool) -> None:
        """Pause or resume groups in queues."""
        store = self._usable()
        for group, queue in group_queues:
            slot = store.groups.find(group, store.topics.slot(queue))
            if slot is not None:
                with slot.locked(store.config.lock_timeout_ms):
                    slot.store("paused", int(paused))
                if slot.load("owner"):
                    store.state.signal_arrival((slot.load("owner") - 1) % layout.ARRIVAL_LANES)

    def _usable(self) -> MessageStore:
        self._store.check_usable()
        return self._store


class LocalMembers:
    """The memberships of one consumer in the groups of a store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._table = store.members()

    @property
    def bell(self) -> Bell:
        """Rings when a member joins or leaves, when a topic is made, and when another member wakes one of these."""
        return self._table.bell

    def all(self) -> list[MemberInfo]:
        """Return every living member."""
        return self._table.all()

    def join(self, group: str, topic: str, client_id: str, terms: Terms) -> LocalMembership:
        """Become a member; leases exclude other members. Raises ReadOnlyReplica."""
        self._store.check_primary()
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
        self._lease_ms = terms.lease_ms
        self._table = member.table
        self._numbered: Sequence[MessageQueue] = ()
        self._numbers: list[int] = []

    def beat(self) -> None:
        """Show that this process is alive."""
        self._member.beat()

    def watch(self) -> bool:
        """Check whether the member that this one watches has died. If so, wake all members and return True."""
        return self._table.watch(self._member.slot)

    def counted(self) -> tuple[MemberInfo, ...]:
        """Return the members that the queues are allocated to, sorted by client id.

        Raises StoreFenced when another store took the place of this one.
        """
        self._store.check_primary()
        return self._table.counted(self.group, self.topic, self._lease_ms)

    def owners(self, queues: Sequence[MessageQueue]) -> tuple[tuple[int, int], ...]:
        """Return the key of each queue's owner, by one read of shared memory."""
        if queues != self._numbered:
            self._numbered, self._numbers = queues, [self._member.queue_slot(queue).number for queue in queues]
        pairs = list(zip(*map(self._store.groups.column, ("owner", "owner_incarnation")), strict=True))
        return tuple([pairs[number] for number in self._numbers])

    def grant(self, queue: MessageQueue) -> QueueGrant | None:
        """Become the owner of a queue and return its grant; None if it is not free."""
        slot = self._member.queue_slot(queue)
        epoch = self._member.take(slot, self._lease_ms)
        return None if epoch is None else self._store.grant(slot, epoch, self._tags)

    def interrupted(self, grant: Grant) -> dict[int, list[Interrupted]]:
        """Return the deaths before this grant by the queue offset of their message, the oldest first."""
        return self._table.running.interrupted(self._member.queue_slot(grant.queue))

    def tell(self, seats: Iterable[Seat]) -> None:
        """Wake these members, so that they look at once."""
        self._member.tell(cast("Iterable[MemberInfo]", seats))

    def claim(self, count: int) -> list[Running]:
        """Take a slot for each of ``count`` handler threads. Raises TableFull, StoreBusy."""
        handler = group_and_member(self.group)[0], self.topic
        return self._table.running.claim(self._member.slot, self._member.incarnation, count, handler)

    def stay_behind(self) -> bool:
        """Leave the allocation, but keep queues that were not released while they are renewed; return True."""
        self._member.retire()
        return True

    def leave(self) -> None:
        """End the membership. Queues must be released before."""
        self._member.leave()
