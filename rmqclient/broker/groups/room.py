"""Room: answers the requests of members of groups, and connects remote members to the store's groups.

====  =====================================================================================================
code  what it does
====  =====================================================================================================
34    a heartbeat: the client, its groups and their subscriptions
35    a client leaves a group
38    the client ids of a group, local members included
41    locks queues for an orderly consumer; 42 unlocks them
46    checks a filter
====  =====================================================================================================
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from rmqclient.broker.clients import heartbeats
from rmqclient.broker.clients.awaited import Awaited
from rmqclient.broker.clients.clients import Clients
from rmqclient.broker.clients.consumer import Consumer
from rmqclient.broker.clients.notices import tell_members_changed
from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.groups.allocation import Allocations
from rmqclient.broker.groups.lease import NonMemberLocks
from rmqclient.broker.groups.leases import Leases
from rmqclient.broker.groups.offsets import OffsetsRoom, StartOffsets
from rmqclient.broker.groups.seats import Seats
from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.limits.made import Made
from rmqclient.broker.request import Peer, Request
from rmqclient.broker.routes import NOTHING, SUB, Need, Route, need_of_group, need_of_topic, of_group
from rmqclient.broker.topics.topic_names import retry_topic
from rmqclient.broker.topics.topics import Topics
from rmqclient.errors import FilterError, QueueError
from rmqclient.names import HANDOVER_SUFFIX
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.message_queue import is_name
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_SILENCE_EVERY_S = 10.0
_LONGEST_NAME = 512
_MOST_LOCKED = 4_096
"""Queues of one request to lock or unlock, at most."""


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
        self._counters = counters
        self._topics = topics
        self._settings = settings
        self._broker_name = broker_name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._seats = Seats(store, made, self._rang)
        self._start_offsets = StartOffsets(store)
        self.awaited = awaited
        self.clients = Clients(self)
        allocations = Allocations(self._seats, self.ids, self._read_queues, store.topics.read_queues)
        self.leases = Leases(store, self._seats, self.clients, allocations, settings, broker_name, counters)
        self._offsets = OffsetsRoom(store, self.clients, self.leases, self._start_offsets)
        self._topics_of: dict[Consumer, set[str]] = {}
        self._unseated: set[Consumer] = set()
        self._locks_apart = NonMemberLocks()
        """Locks of read-only members; they exclude only each other."""
        self._announced: dict[str, tuple[object, ...]] = {}
        self._logged: set[tuple[str, str, str]] = set()
        self._is_called = False  # whether a look is scheduled on the loop
        self._looked_for_silence_at = time.monotonic()
        self._pool = ThreadPoolExecutor(1, "rmq-serve-groups")

    def routes(self) -> Iterable[Route]:
        """Declare the requests of members. A check of a filter (46) reads and changes nothing."""
        yield Route(RequestCode.HEART_BEAT, self._heartbeat, needs=_of_heartbeat, writes=False)
        yield Route(RequestCode.UNREGISTER_CLIENT, self._unregister, needs=of_group(), writes=False)
        yield Route(RequestCode.GET_CONSUMER_LIST_BY_GROUP, self._members, needs=of_group(), writes=False)
        yield Route(RequestCode.LOCK_BATCH_MQ, self._lock, needs=_of_locks, writes=False)
        yield Route(RequestCode.UNLOCK_BATCH_MQ, self._unlock, needs=_of_locks, writes=False)
        yield Route(RequestCode.CHECK_CLIENT_CONFIG, self._check, needs=NOTHING, writes=False, slow=True)
        yield from self._offsets.routes()

    def close(self) -> None:
        """Release every seat and queue. Call it after the last request."""
        self._loop = None
        self._pool.shutdown()
        self._seats.close()

    def ids(self, group: str) -> tuple[str, ...]:
        """Return the client ids of a group, local and remote, as Java sorts them."""
        from rmqclient.allocation.strategy import in_order_of_members  # noqa: PLC0415 - with the first member

        remote = {each.client_id for each in self.clients.consumers(group) if not each.refused}
        return tuple(in_order_of_members([*remote, *self._seats.local_ids(group)]))

    @property
    def _is_read_only(self) -> bool:
        return self._read_only or self._store.is_replica

    # --- called by Clients -----------------------------------------------------------------------

    def joined(self, consumer: Consumer) -> None:
        """Give a member its seats, and take back those of topics that it no longer subscribes to."""
        self._start_offsets.note(consumer, functools.partial(self.awaited.awaits, consumer.peer))
        if consumer.shares_queues and not self._is_read_only:
            for topic in self._topics_of.setdefault(consumer, set()) - consumer.subscriptions.keys():
                self._topics_of[consumer].discard(topic)
                self.leases.release_topic(consumer, topic)
                self._seats.leave(consumer, topic)
            self._seat(consumer)
        self.leases.members_changed()

    def left(self, consumer: Consumer) -> None:
        """Take a member's queues and seats back; tell the others of its group."""
        self._unseated.discard(consumer)
        self.leases.leave(consumer)
        self._leave_seats(consumer)
        if not self.clients.consumers(consumer.group):
            self._start_offsets.forget(consumer.group)
            self._announced.pop(consumer.group, None)
        self.leases.members_changed()
        self._announce(consumer.group)

    def _seat(self, consumer: Consumer) -> None:
        """Take a seat for every topic; a failed one is tried again at each look."""
        self._unseated.discard(consumer)
        for topic, subscription in consumer.subscriptions.items():
            try:
                sits = self._seats.sit(consumer, subscription)
            except QueueError as error:
                self._complain(consumer, topic, f"has no seat, and gets no messages: {error}")
                sits = False
            else:
                if not sits:
                    wants = f"{subscription.expression_type} {subscription.expression!r}"
                    self._complain(consumer, topic, f"wants {wants}, and local members want others: it gets none")
            if sits:
                consumer.refused.discard(topic)
                self._topics_of[consumer].add(topic)
            else:
                consumer.refused.add(topic)
                self._unseated.add(consumer)
                self._topics_of[consumer].discard(topic)
                self.leases.release_topic(consumer, topic)
                self._seats.leave(consumer, topic)

    def _leave_seats(self, consumer: Consumer) -> None:
        """Leave the seats of topics in which no queue is reserved for a client that may come back."""
        topics = self._topics_of.get(consumer, set())
        for topic in [each for each in topics if not self.leases.has_any(consumer, each)]:
            topics.discard(topic)
            self._seats.leave(consumer, topic)
        if not topics:
            self._topics_of.pop(consumer, None)

    def _complain(self, consumer: Consumer, topic: str, text: str) -> None:
        key = (consumer.group, topic, consumer.client_id)
        if key not in self._logged:
            if len(self._logged) >= 10_000:
                self._logged.clear()
            self._logged.add(key)
            _log.error("group %s, topic %s: %s %s", consumer.group, topic, consumer.client_id, text)

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
        for consumer in list(self._unseated):
            self._seat(consumer)
        for consumer in [each for each in self._topics_of if not each.peer.is_open]:
            self._leave_seats(consumer)
        self.leases.look()
        self._locks_apart.end_old()
        for group in self.clients.consumer_groups():
            self._announce(group)
        if time.monotonic() > self._looked_for_silence_at + _SILENCE_EVERY_S:
            self._looked_for_silence_at = time.monotonic()
            self.clients.end_silent()

    def _announce(self, group: str, *, anyway: bool = False) -> None:
        """Send request 40 to all members of a group if its members or its topics' queues have changed."""
        consumers = self.clients.consumers(group)
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

    # --- answering -------------------------------------------------------------------------------

    def _heartbeat(self, request: Request) -> Frame | None:
        try:
            return self._taken_in(request)
        except AnswerError as error:
            raise self._refused(request, error) from None

    def _refused(self, request: Request, error: AnswerError) -> AnswerError:
        text = f"client {request.peer.remote}: a heartbeat is refused: {error.remark}"
        self._counters.refuse(Refusal.HEARTBEAT, text)
        return error

    def _taken_in(self, request: Request) -> Frame | None:
        self._start()
        if self.clients.repeats(request.peer, request.body):
            return request.success()
        heartbeat = heartbeats.read(request.body)
        groups = [each.group for each in heartbeat.consumers]
        for group in groups:
            self._settings.auto_create(group, request.peer.remote)
        missing = [
            group
            for group in groups
            if not self._is_read_only and is_name(topic := retry_topic(group)) and topic not in self._topics.made()
        ]
        if not missing:
            return self._beat(request, heartbeat)
        loop = asyncio.get_running_loop()

        def make() -> None:
            for group in missing:
                self._topics.create_retry(group, self._settings.settings(group).retry_queues)

        def made(error: BaseException | None) -> None:
            if error is not None:
                request.answer(request.failure(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__} {error}"))
            elif request.peer.is_open:
                request.answer(self._beat_at_last(request, heartbeat))

        future = self._pool.submit(make)
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(made, done.exception()))
        return None

    def _beat_at_last(self, request: Request, heartbeat: bodies.Heartbeat) -> Frame:
        """Take a heartbeat whose topics had to be made. The client is answered in any case."""
        try:
            return self._beat(request, heartbeat)
        except AnswerError as error:
            self._refused(request, error)
            return request.failure(error.code, error.remark or str(error))
        except Exception as error:  # noqa: BLE001 - there is no caller to raise to
            _log.exception("the heartbeat of %s failed", request.peer.remote)
            return request.failure(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__} {error}")

    def _beat(self, request: Request, heartbeat: bodies.Heartbeat) -> Frame:
        frame = request.frame
        for group in sorted(self.clients.beat(request.peer, heartbeat, frame.language, frame.version)):
            self._announce(group, anyway=True)
        self.clients.remember(request.peer, request.body, heartbeat)
        return request.success()

    def _start(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._is_called = False
            self._seats.start()

    def _unregister(self, request: Request) -> Frame:
        fields = request.fields
        self.clients.leave(request.peer, fields.get("producerGroup"), fields.get("consumerGroup"))
        return request.success()

    def _members(self, request: Request) -> Frame:
        group = request.fields["consumerGroup"]
        consumer = self.clients.consumer(group, request.peer)
        if consumer is not None:
            consumer.asked_members_at = consumer.seen_at = time.monotonic()
        ids = self.ids(group)
        if not ids:
            return request.failure(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return request.success(bodies.ConsumerIds(ids).encode())

    def _lock(self, request: Request) -> Frame:
        wanted = _lock_request(request)
        group = wanted.group.removesuffix(HANDOVER_SUFFIX)
        locked = [
            queue
            for queue in wanted.queues
            if queue.broker_name == self._broker_name and self._locks(request.peer, wanted, group, _local(queue))
        ]
        return request.success(bodies.LockedQueues(tuple(locked)).encode())

    def _locks(self, peer: Peer, wanted: bodies.LockRequest, group: str, queue: MessageQueue) -> bool:
        if self._store.is_replica:  # the primary has the locks
            return False
        if self._is_read_only:
            return self._locks_apart.lock((group, queue), wanted.client_id)
        return self.leases.lock(peer, group, wanted.client_id, queue, ordered=group == wanted.group)

    def _unlock(self, request: Request) -> Frame:
        wanted = _lock_request(request)
        group = wanted.group.removesuffix(HANDOVER_SUFFIX)
        for queue in wanted.queues:
            self._locks_apart.unlock((group, _local(queue)), wanted.client_id)
            if not self._is_read_only:
                self.leases.unlock(request.peer, group, wanted.client_id, _local(queue))
        return request.success()

    def _check(self, request: Request) -> Frame:
        """Check a filter. [ClientManageProcessor.checkClientConfig]"""
        check = bodies.ClientConfigCheck.decode(request.body)
        heartbeats.check_subscription(check.group, check.subscription)
        kind = check.subscription.expression_type
        if kind in ("", "TAG"):
            return request.success()
        if kind != "SQL92":
            text = f"expressions of type {kind[:100]!r} are not known: give TAG or SQL92"
            return request.failure(ResponseCode.SUBSCRIPTION_PARSE_FAILED, text)
        from rmqclient.filters.sql92 import Sql92  # noqa: PLC0415 - few clients bring such an expression

        try:
            Sql92(check.subscription.expression)
        except FilterError as error:
            return request.failure(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        return request.success()


def _local(queue: MessageQueue) -> MessageQueue:
    return MessageQueue(queue.topic, queue.queue_id)


def _lock_request(request: Request) -> bodies.LockRequest:
    wanted = bodies.LockRequest.decode(request.body)
    heartbeats.check_group(wanted.group)
    heartbeats.check_client(wanted.client_id)
    for queue in wanted.queues:  # any name is allowed: a client without a group locks names that are no queues
        if len(queue.topic) > _LONGEST_NAME:
            text = f"a lock with a name of {len(queue.topic):,} characters; at most {_LONGEST_NAME}"
            raise heartbeats.refusal(f"group {wanted.group!r}: {text}")
    if len(wanted.queues) > _MOST_LOCKED:
        text = f"{len(wanted.queues)} queues in one request; at most {_MOST_LOCKED}"
        raise heartbeats.refusal(text)
    return wanted


def _of_heartbeat(request: Request) -> Iterator[Need]:
    for consumer in bodies.Heartbeat.decode(request.body).consumers:
        yield need_of_group(consumer.group)
        for subscription in consumer.subscriptions:
            yield need_of_topic(subscription.topic, SUB)


def _of_locks(request: Request) -> Iterator[Need]:
    asked = bodies.LockRequest.decode(request.body)
    yield need_of_group(asked.group)
    for queue in asked.queues:
        yield need_of_topic(queue.topic, SUB)
