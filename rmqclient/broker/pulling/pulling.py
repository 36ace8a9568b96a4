"""Pulling: requests 11 and 361: checks, answers, holding.

The checks come in the order of RocketMQ's broker (PullMessageProcessor): group, topic, its permission, the queue, the
subscription. A client that may not have the queue now gets the answer of an empty queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.pulling.cold_reads import ColdReads
from rmqclient.broker.pulling.held_pulls import HeldPulls
from rmqclient.broker.pulling.page_prefetch import PagePrefetch
from rmqclient.broker.pulling.pending_subscriptions import PendingSubscriptions
from rmqclient.broker.pulling.pull import COMMITS, HAS_FILTER_CLASS, HAS_SUBSCRIPTION, MAY_WAIT, Pull
from rmqclient.broker.pulling.queue_reader import MOST_BYTES, MOST_MESSAGES, Look, LookStatus, QueueReader
from rmqclient.broker.pulling.rules import Leases, Subscriptions
from rmqclient.broker.pulling.selection import selection_of
from rmqclient.broker.request import Request
from rmqclient.broker.routes import Route, of_topic_and_group
from rmqclient.broker.topics.topics import Topics, unknown
from rmqclient.remoting import bodies
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.errors import QueueError, UnknownTopic

_FETCHING_THREADS: Final = 2

_WAITING_STATUSES: Final = (
    LookStatus.OFFSET_OVERFLOW_ONE,
    LookStatus.NO_MESSAGE_IN_QUEUE,
    LookStatus.NO_MATCHED_LOGIC_QUEUE,
)

_AHEAD_OF_A_REPLICA: Final = (LookStatus.OFFSET_OVERFLOW_BADLY,)
"""The client has read further at the primary than the replica has: it waits, and its offset is not reset."""


class Pulling:
    """The room of pulls. Except for :meth:`close`, for the thread of the event loop."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: GroupSettings,
        subscriptions: Subscriptions,
        leases: Leases,
        *,
        counters: Counters,
        most_held: int,
        memory_percent: int | None = None,
    ) -> None:
        """``memory_percent``: see :class:`ColdReads`."""
        self._reader = QueueReader(store)
        self._cold = ColdReads(store, memory_percent)
        self._is_replica = store.is_replica
        self._topics = topics
        self._groups = groups
        self._subscriptions = subscriptions
        self._leases = leases
        self._held = HeldPulls(store, self, most_held)
        leases.when_free(self._held.look_at)
        self._counters = counters
        self._prefetch = PagePrefetch(store)
        self._fetching = ThreadPoolExecutor(_FETCHING_THREADS, "rmq-pages")
        self._pending = PendingSubscriptions(self._is_late, self._pull_at_last)

    def routes(self) -> Iterable[Route]:
        """Declare pulls. They are not slow; a read-only server clears their commit flag, so they do not write."""
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            yield Route(code, self.pull, needs=of_topic_and_group(), writes=False)

    def close(self) -> None:
        """End the threads that wait for messages and for the disk."""
        self._held.close()
        self._fetching.shutdown()

    def drain(self) -> None:
        """Answer waiting pulls now."""
        self._pending.drain()
        self._held.drain()

    @property
    def held(self) -> int:
        """Number of held pulls."""
        return self._held.count

    def pull(self, request: Request) -> Frame | None:
        """Answer a pull; None if it waits for a heartbeat, a message, or the disk."""
        fields = request.fields
        queue = self._checked_queue(request, fields)
        if self._is_late(request):
            self._pending.wait(request)
            return None
        return self._pull(request, queue)

    def _pull(self, request: Request, queue: MessageQueue) -> Frame | None:
        fields = request.fields
        pull = self._new_pull(request, fields, queue, self._subscription(fields))
        if 0 <= pull.offset < self.end(queue) and self._prefetch.are_missing(queue, pull.offset, pull.most):
            fetching = asyncio.get_running_loop().run_in_executor(
                self._fetching, self._prefetch.fetch, queue, pull.offset, pull.most, pull.most_bytes
            )
            fetching.add_done_callback(lambda _: self._answer_fetched(pull))
            return None
        return self._answered(pull)

    def _answer_fetched(self, pull: Pull) -> None:
        """Answer a pull whose records were read from disk."""
        try:
            answer = self._answered(pull)
        except QueueError as error:
            answer = _failure(pull.request, error)
        if answer is not None:
            pull.request.answer(answer)

    def _answered(self, pull: Pull) -> Frame | None:
        request = pull.request
        look = self._look(pull)
        self._commit(pull)
        if pull.wait_s <= 0 or not _has_nothing_yet(look, pull):
            return pull.answer(look)
        if self._held.is_full:
            text = f"{self._held.count:,} pulls wait for messages: no other may"
            self._counters.refuse(Refusal.HELD_PULL, f"client {request.peer.remote}: {text}")
            return request.failure(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{text}")
        return self._held.hold(pull)

    def _is_late(self, request: Request) -> bool:
        """Whether a pull has a newer version of its subscription than the heartbeats."""
        fields = request.fields
        if fields["sysFlag"] & HAS_SUBSCRIPTION:
            return False
        found = self._subscriptions.subscription(fields["consumerGroup"], fields["topic"])
        return found is not None and found.version < fields["subVersion"]

    def _pull_at_last(self, request: Request) -> Frame | None:
        """Answer a pull that waited for a heartbeat."""
        try:
            queue = self._checked_queue(request, request.fields)
            if self._is_late(request):
                raise AnswerError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
            return self._pull(request, queue)
        except QueueError as error:
            return _failure(request, error)

    # --- for held pulls

    def look_again(self, pull: Pull) -> Frame | None:
        """As :meth:`Looking.look_again`."""
        try:
            look = self._look(pull)
        except QueueError as error:
            return _failure(pull.request, error)
        if _has_nothing_yet(look, pull):
            return None
        if look.status is LookStatus.NO_MATCHED_MESSAGE and look.next_offset >= look.max_offset:
            pull.position = look.next_offset
            return None
        return pull.answer(look)

    def give_up(self, pull: Pull) -> Frame:
        """Return the answer to a pull that timed out. Its offset is after the messages that did not match."""
        look = self._reader.nothing(pull.queue, pull.position)
        if pull.position > pull.offset:
            return pull.answer(Look(LookStatus.NO_MATCHED_MESSAGE, look.next_offset, look.min_offset, look.max_offset))
        return pull.answer(look)

    def end(self, queue: MessageQueue) -> int:
        """As :meth:`Looking.end`."""
        return self._reader.end(queue)

    # --- checks, in the broker's order

    def _checked_queue(self, request: Request, fields: Mapping[str, Any]) -> MessageQueue:
        """Return the queue of a pull. Raises AnswerError if group, topic or queue do not allow it."""
        group, topic, queue_id = fields["consumerGroup"], fields["topic"], fields["queueId"]
        if not self._groups.auto_create(group, request.peer.remote).may_consume:
            raise AnswerError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
        known = self._topics.config(topic)
        if known is None:
            raise unknown(topic)
        if not known.perm & bodies.READABLE:
            raise AnswerError(ResponseCode.NO_PERMISSION, f"the topic[{topic}] pulling message is forbidden")
        if not 0 <= queue_id < known.read_queue_count:
            raise AnswerError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{known.read_queue_count}] "
                f"consumer:[{request.peer.remote}]",
            )
        return MessageQueue(topic, queue_id)

    def _subscription(self, fields: Mapping[str, Any]) -> bodies.Subscription:
        """Return the subscription of a pull, or of its group's heartbeats. Raises AnswerError."""
        group, topic, flags = fields["consumerGroup"], fields["topic"], fields["sysFlag"]
        if flags & HAS_FILTER_CLASS:
            raise AnswerError(
                ResponseCode.SYSTEM_ERROR,
                "a filter class is code of the consumer: this broker filters by TAG and SQL92",
            )
        if flags & HAS_SUBSCRIPTION:
            kind = fields.get("expressionType") or "TAG"
            return bodies.Subscription(topic, fields.get("subscription") or "*", fields["subVersion"], kind)
        found = self._subscriptions.subscription(group, topic)
        if found is None:
            raise AnswerError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        return found

    def _new_pull(
        self, request: Request, fields: Mapping[str, Any], queue: MessageQueue, subscription: bodies.Subscription
    ) -> Pull:
        flags = fields["sysFlag"]
        return Pull(
            request=request,
            group=fields["consumerGroup"],
            queue=queue,
            offset=fields["queueOffset"],
            position=fields["queueOffset"],
            most=max(1, min(fields["maxMsgNums"], MOST_MESSAGES)),
            most_bytes=max(1, min(fields.get("maxMsgBytes", MOST_BYTES), MOST_BYTES)),
            selection=selection_of(subscription),
            wait_s=max(0, fields["suspendTimeoutMillis"]) / 1000 if flags & MAY_WAIT else 0.0,
        )

    # --- looking and committing

    def _look(self, pull: Pull) -> Look:
        request = pull.request
        try:
            pull.is_allowed = self._leases.may_pull(request, pull.group, pull.queue)
            if not pull.is_allowed:
                return self._reader.nothing(pull.queue, pull.position)
            pull.position = max(pull.position, self._leases.feed_from(request, pull.group, pull.queue))
        except UnknownTopic:
            pull.is_allowed = True  # the first message makes the queue, so no member could take it before
        look = self._reader.look(
            pull.queue, pull.position, pull.most, pull.most_bytes, pull.selection, request.peer.local
        )
        if self._is_replica and look.status in _AHEAD_OF_A_REPLICA and pull.position > 0:
            return self._reader.nothing(pull.queue, pull.position)
        if look.messages:
            pull.suggested = self._cold.broker_after(pull.queue, look.next_offset)
            self._leases.count_delivered(pull.group, pull.queue, look.messages, len(look.body))
        return look

    def _commit(self, pull: Pull) -> None:
        """Commit the client's offset, even if the pull is held afterwards."""
        fields = pull.request.fields
        if fields["sysFlag"] & COMMITS and fields["commitOffset"] >= 0:
            with suppress(UnknownTopic):
                self._leases.commit(pull.request.peer, pull.group, pull.queue, fields["commitOffset"])


def _has_nothing_yet(look: Look, pull: Pull) -> bool:
    """Whether a pull finds nothing yet: at the end of its queue, or at offset 0 of an empty one."""
    if look.status is LookStatus.OFFSET_OVERFLOW_ONE:
        return True
    return look.status in _WAITING_STATUSES and pull.position == 0


def _failure(request: Request, error: QueueError) -> Frame:
    if isinstance(error, AnswerError):
        return request.failure(error.code, error.remark or str(error))
    return request.failure(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__} {error}")
