"""Local transactions: the half messages of one producer group in a store of this host.

The store checks an undecided transaction as RocketMQ's broker does: it stores the half message again with its number of
checks increased (:mod:`rmqclient.store.waiting.transaction`), and wakes the producers. A producer with a ``check`` is a
member of its group in the half topic. Each member handles its share of these half messages: those whose queue offset,
modulo the number of living members, is the member's position. So if the sending producer died, another one is asked. If
that one dies during the check, the next round asks again. If one hangs, the next checks run beside it; its member beats
no more meanwhile, so that ``rmq check`` names its process, and other members take its share after a time.
"""

from __future__ import annotations

import contextlib
import functools
import os

from rmqclient.backend.transactions import Ask
from rmqclient.message import ReceivedMessage, SendResult
from rmqclient.store import HALF_TOPIC, Member, MessageStore, default_client_id
from rmqclient.store.append.replicas import told
from rmqclient.store.errors import QueueError, TransactionDecided
from rmqclient.store.native_threads import threading
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log
from rmqclient.store.threads.watched_calls import WatchedCalls
from rmqclient.store.waiting.half_messages import checks_of, group_of

_log = Log(__name__)

_BEAT_S = 0.25
_ASKED_AT_ONCE = 256
"""Half messages of one read, at most."""
_HANGS_AFTER_S = 10.0
"""A check that takes longer hangs: the next one does not wait for it."""
_MOST_CHECKS = 8
"""Checks beside each other, at most; all but one of them hang."""
_SILENT_MS = 60_000
"""A member that has not gone on for longer has no share."""


class LocalTransactions:
    """The transactions of one group. With ``durable``, a decision returns when it is on disk."""

    def __init__(self, store: MessageStore, group: str, client_id: str | None, *, durable: bool) -> None:
        self._store = store
        self._group = group
        self._client_id = client_id
        self._durable = durable
        self._checker: _Checker | None = None
        self.check_usable = store.life.check_usable

    def decide(self, half: SendResult | ReceivedMessage, *, commit: bool) -> SendResult | None:
        """Commit a half message or roll it back; return the committed message's offsets.

        Raises TransactionDecided once an earlier decision is as safe as one made here.
        """
        self._store.life.check_usable()
        try:
            result = self._store.transactions.decide(self._store.messages.read(half.commit_log_offset), commit=commit)
        except TransactionDecided:
            self._settle(self._store.state.published_to)
            raise
        result = told(result, self._settle(result.commit_log_end))
        return result if commit else None

    def _settle(self, end: int) -> bool | None:
        """Wait for the disk and replicas, as configured. Raises NotFlushed, StorePoisoned, NotReplicated."""
        if self._durable:
            self._store.flusher.wait_until_flushed(end)
        return self._store.replicas.settle(end)

    def answer(self, ask: Ask) -> None:
        """Call ``ask``, on a thread of its own, with this member's share of the undecided half messages."""
        self._checker = _Checker(self._store, self._group, ask, self, self._client_id or default_client_id())

    def close(self) -> None:
        """Stop the checks."""
        if self._checker is not None:
            self._checker.close()
            self._checker = None  # it refers to the producer, which would keep the files of the store mapped


class _Checker:
    """Calls ``ask`` for the group's undecided transactions, on a thread of its own."""

    def __init__(
        self, store: MessageStore, group: str, ask: Ask, transactions: LocalTransactions, client_id: str
    ) -> None:
        self._store = store
        self._group = group
        self._call = ask
        self._transactions = transactions
        self._pid = os.getpid()
        self._table = store.members()
        self._member: Member = self._table.join(self._group, HALF_TOPIC, client_id, "transactions")
        self._bell = self._table.bell
        self._next = 0
        self._closed = threading.Event()
        self._calls = WatchedCalls(
            f"check of producer group {group!r}, message", "rmq-check", patience_s=_HANGS_AFTER_S, most=_MOST_CHECKS
        )
        self._thread = GuardedThread(target=self._run, name="rmq-checks")
        self._thread.start()

    def close(self) -> None:
        """End the threads, and wait for their end; not for a check that hangs."""
        if self._closed.is_set() or os.getpid() != self._pid:
            return
        self._closed.set()
        self._bell.ring()
        self._calls.close()
        self._thread.join()
        self._member.leave()

    def _run(self) -> None:
        while not self._closed.is_set():
            heard = self._bell.heard()
            self._beat()
            try:
                self._table.watch(self._member.slot)
                self._answer()
            except (QueueError, OSError) as error:
                _log.error("producer group %r cannot be asked about its transactions now: %s", self._group, error)
            if not self._closed.is_set():
                self._bell.wait(heard, _BEAT_S)

    def _answer(self) -> None:
        """Check this member's share of the half messages that were stored again since the last call."""
        end = self._store.transactions.end
        while self._next < end:
            found = self._store.transactions.pending(self._next, _ASKED_AT_ONCE)
            self._answer_for(found)
            if self._closed.is_set():
                return
            if len(found) < _ASKED_AT_ONCE:
                self._next = max(self._next, end)

    def _answer_for(self, halves: list[ReceivedMessage]) -> None:
        for half in halves:
            if self._closed.is_set():
                return
            if group_of(half) == self._group and checks_of(half) > 0 and self._is_mine(half.queue_offset):
                self._beat()
                self._calls.run(half.message_id, functools.partial(self._ask, half))
                if self._closed.is_set():
                    return
            self._next = half.queue_offset + 1

    def _beat(self) -> None:
        if not self._calls.hang:
            self._member.beat()

    def _is_mine(self, half_offset: int) -> bool:
        members = sorted(
            (each.client_id, each.slot)
            for each in self._table.roll.all()
            if (each.group, each.topic) == (self._group, HALF_TOPIC) and (each.heartbeat_age_ms or 0) < _SILENT_MS
        )
        mine = (self._member.client_id, self._member.slot)
        return not members or members[half_offset % len(members)] == mine

    def _ask(self, half: ReceivedMessage) -> None:
        commit = self._call(half.as_delivered().limited_to(self._store.config.max_opened_body_bytes))
        if commit is not None:
            with contextlib.suppress(TransactionDecided):  # the sending producer may have decided it meanwhile
                self._transactions.decide(half, commit=commit)
