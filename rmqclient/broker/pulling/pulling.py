"""Pulling: answers requests 11 and 361. A client that may not have the queue now gets the answer of an empty queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from rmqclient.broker.group_settings import GroupSettings
from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.pulling.checks import PullChecks
from rmqclient.broker.pulling.cold_reads import ColdReads
from rmqclient.broker.pulling.held_pulls import HeldPulls
from rmqclient.broker.pulling.page_prefetch import PagePrefetch
from rmqclient.broker.pulling.pending_subscriptions import PendingSubscriptions
from rmqclient.broker.pulling.pull import COMMITS, Pull
from rmqclient.broker.pulling.queue_reader import Look, LookStatus, QueueReader
from rmqclient.broker.pulling.rules import Commit, Leases, Subscriptions
from rmqclient.broker.request import Request
from rmqclient.broker.routes import Route, of_topic_and_group
from rmqclient.broker.topics.topics import Topics
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageStore
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
        commit: Commit,
        *,
        counters: Counters,
        most_held: int,
        memory_percent: int | None = None,
    ) -> None:
        """``memory_percent``: see :class:`ColdReads`."""
        self._reader = QueueReader(store)
        self._cold = ColdReads(store, memory_percent)
        self._is_replica = store.life.is_replica
        self._checks = PullChecks(topics, groups, subscriptions)
        self._leases = leases
        self._commit_offset = commit
        self.held = HeldPulls(store, self._reader, self._look_again, self._give_up, most_held)
        self._counters = counters
        self._prefetch = PagePrefetch(store)
        self._fetching = ThreadPoolExecutor(_FETCHING_THREADS, "rmq-pages")
        self._pending = PendingSubscriptions(self._checks.is_late, self._pull_at_last)

    def routes(self) -> Iterable[Route]:
        """Declare pulls. They are not slow; a read-only server clears their commit flag, so they do not write."""
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            yield Route(code, self.pull, needs=of_topic_and_group(), writes=False)

    def close(self) -> None:
        """End the threads that wait for messages and for the disk."""
        self.held.arrivals.close()
        self._fetching.shutdown()

    def drain(self) -> None:
        """Answer waiting pulls now."""
        self._pending.drain()
        self.held.drain()

    def pull(self, request: Request) -> Frame | None:
        """Answer a pull; None if it waits for a heartbeat, a message, or the disk."""
        pull = self._checks.pull(request)
        if pull is None:
            self._pending.wait(request)
            return None
        return self._answered_from_memory(pull)

    def _pull_at_last(self, request: Request) -> Frame | None:
        """Answer a pull that waited for a heartbeat."""
        try:
            pull = self._checks.pull(request)
            if pull is None:
                raise AnswerError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
            return self._answered_from_memory(pull)
        except QueueError as error:
            return _failure(request, error)

    def _answered_from_memory(self, pull: Pull) -> Frame | None:
        """Answer a pull after its records were read from disk, if they are not in memory."""
        queue, offset, most = pull.queue, pull.offset, pull.most
        if 0 <= offset < self._reader.end(queue) and self._prefetch.are_missing(queue, offset, most):
            fetching = asyncio.get_running_loop().run_in_executor(
                self._fetching, self._prefetch.fetch, queue, offset, most, pull.most_bytes
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
        if self.held.is_full:
            text = f"{self.held.count:,} pulls wait for messages: no other may"
            self._counters.refuse(Refusal.HELD_PULL, f"client {request.peer.remote}: {text}")
            return request.failure(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{text}")
        return self.held.hold(pull)

    # --- for held pulls

    def _look_again(self, pull: Pull) -> Frame | None:
        """Return the answer to a held pull; None, after moving its position, if it must wait longer."""
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

    def _give_up(self, pull: Pull) -> Frame:
        """Return the answer to a pull that timed out. Its offset is after the messages that did not match."""
        look = self._reader.nothing(pull.queue, pull.position)
        if pull.position > pull.offset:
            return pull.answer(Look(LookStatus.NO_MATCHED_MESSAGE, look.next_offset, look.min_offset, look.max_offset))
        return pull.answer(look)

    # --- looking and committing

    def _look(self, pull: Pull) -> Look:
        request = pull.request
        try:
            begin = self._leases.read_from(request, pull.group, pull.queue)
            pull.is_allowed = begin is not None
            if begin is None:
                return self._reader.nothing(pull.queue, pull.position)
            pull.position = max(pull.position, begin)
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
                self._commit_offset(pull.request.peer, pull.group, pull.queue, fields["commitOffset"])


def _has_nothing_yet(look: Look, pull: Pull) -> bool:
    """Whether a pull finds nothing yet: at the end of its queue, or at offset 0 of an empty one."""
    if look.status is LookStatus.OFFSET_OVERFLOW_ONE:
        return True
    return look.status in _WAITING_STATUSES and pull.position == 0


def _failure(request: Request, error: QueueError) -> Frame:
    if isinstance(error, AnswerError):
        return request.failure(error.code, error.remark or str(error))
    return request.failure(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__} {error}")
