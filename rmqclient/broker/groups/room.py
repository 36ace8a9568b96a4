"""Room: the requests of members of groups, and what connects remote members to the store's groups."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable

from rmqclient.broker.clients.awaited import Awaited
from rmqclient.broker.clients.clients import Clients
from rmqclient.broker.clients.member import Consumer
from rmqclient.broker.clients.notices import tell_members_changed
from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.groups.allocation import Allocations
from rmqclient.broker.groups.fences import Fences
from rmqclient.broker.groups.leases import Leases
from rmqclient.broker.groups.locks import LocksRoom
from rmqclient.broker.groups.offsets import Commits, OffsetsRoom, StartOffsets
from rmqclient.broker.groups.seating import Seating
from rmqclient.broker.groups.seats import Seats
from rmqclient.broker.groups.transfers import Transfers
from rmqclient.broker.limits.counters import Counters
from rmqclient.broker.limits.made import Made
from rmqclient.broker.routes import Room, Route
from rmqclient.broker.topics.topics import Topics
from rmqclient.store import MessageQueue, MessageStore

_SILENCE_EVERY_S = 10.0


class GroupsRoom:
    """Members of groups and owners of queues. Except for :meth:`close`, for the thread of the event loop.

    ``broker_name`` is the one that clients know. With ``read_only``, members may read any queue, and take neither a
    seat nor a queue in the store.
    """

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        settings: GroupSettings,
        broker_name: str,
        counters: Counters,
        awaited: Awaited,
        made: Made,
        *,
        read_only: bool = False,
    ) -> None:
        self._store = store
        self._read_only = read_only
        self._topics = topics
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._seats = Seats(store, made, self._rang)
        self._start_offsets = StartOffsets(store)
        self.awaited = awaited
        self.clients = Clients(self, store.state.awake.ran_s)
        self._allocations = Allocations(self._seats, self.ids, self._read_queues, store.topics.read_queues)
        fences = Fences(store, self._seats)
        self.transfers = Transfers(self._allocations, fences, store.state.awake.ran_s)
        self.leases = Leases(store, self._seats, self.clients, fences, self.transfers, broker_name)
        self.commits = Commits(store, self._seats, self.clients, self.leases, fences, settings, counters)
        self._locks = LocksRoom(store, self.clients, self.leases, fences, broker_name, read_only=read_only)
        offsets = OffsetsRoom(store, self.clients, self.commits, self._start_offsets)
        self._rooms: tuple[Room, ...] = (self._locks, offsets)
        self._seating = Seating(self._seats, self.leases)
        self._announced: dict[str, tuple[object, ...]] = {}
        self._is_called = False  # whether a look is scheduled on the loop
        self._looked_for_silence_at = self.clients.ran_s()

    def routes(self) -> Iterable[Route]:
        """Declare the requests for locks and about offsets."""
        for room in self._rooms:
            yield from room.routes()

    def close(self) -> None:
        """Release every seat and queue. Call it after the last request."""
        self._loop = None
        self._seats.close()

    def ids(self, group: str) -> tuple[str, ...]:
        """Return the client ids of a group, local and remote, as Java sorts them."""
        from rmqclient.allocation.strategy import in_order_of_members  # noqa: PLC0415 - with the first member

        remote = {each.client_id for each in self.clients.consumers.of(group) if not each.refused}
        return tuple(in_order_of_members([*remote, *self._seats.local_ids(group)]))

    @property
    def is_read_only(self) -> bool:
        """Whether members take neither a seat nor a queue: also while the store is a replica."""
        return self._read_only or self._store.life.is_replica

    def start(self) -> None:
        """Begin to look for changes, on the running loop; a later call does nothing."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._is_called = False
            self._seats.start()

    # --- called by Clients -----------------------------------------------------------------------

    def joined(self, consumer: Consumer) -> None:
        """Give a member its seats, and take back those of topics that it no longer subscribes to."""
        self._start_offsets.note(consumer, functools.partial(self.awaited.awaits, consumer.peer))
        if consumer.shares_queues and not self.is_read_only:
            self._seating.joined(consumer)
        self._allocations.forget()

    def left(self, consumer: Consumer) -> None:
        """Take a member's queues and seats back; tell the others of its group."""
        self._seating.left(consumer)
        if not self.clients.consumers.of(consumer.group):
            self._start_offsets.forget(consumer.group)
            self._announced.pop(consumer.group, None)
        self._allocations.forget()
        self.announce(consumer.group)

    # --- looking ---------------------------------------------------------------------------------

    def _rang(self) -> None:
        """Schedule a look on the event loop; called by the thread of the seats."""
        loop = self._loop
        if loop is not None and not self._is_called:
            self._is_called = True
            try:
                loop.call_soon_threadsafe(self.look)
            except RuntimeError:  # the loop has ended
                self._loop = None

    def look(self) -> None:
        """Find changes by local members and by time, and advance the moves of queues."""
        self._is_called = False
        self._seats.forget_local_ids()
        self._seating.look()
        self.leases.look()
        self._locks.end_old()
        for group in self.clients.consumers.groups():
            self.announce(group)
        if self.clients.ran_s() > self._looked_for_silence_at + _SILENCE_EVERY_S:
            self._looked_for_silence_at = self.clients.ran_s()
            self.clients.end_silent()

    def announce(self, group: str, *, anyway: bool = False) -> None:
        """Send request 40 to all members of a group if its members or its topics' queues have changed."""
        consumers = self.clients.consumers.of(group)
        if not consumers:
            return
        topics = sorted(self.clients.subscriptions(group))
        counts = [len(self._read_queues(topic)) for topic in topics]
        state = (self.ids(group), *zip(topics, counts, strict=True))
        is_due = anyway or self._announced.get(group, state) != state
        if is_due and self._settings.settings(group).tells_changes:
            for consumer in consumers:
                tell_members_changed(consumer)
        self._announced[group] = state

    def _read_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that remote consumers see; empty for a missing topic."""
        config = self._topics.config(topic)
        queues = self._topics.queues(topic)
        return [queue for queue in queues if config is not None and queue.queue_id < config.read_queue_count]
