"""Transactions: decisions about half messages (request 37), and brokers' checks of undecided ones (request 39).

RocketMQ's clients send 37 without waiting for an answer. Here the producer waits, so a decision that returns is done,
and a failed one raises. A decision is sent only once, because a broker that has it would carry it out again; if it did
not arrive, the broker asks later (EndTransactionProcessor).

A broker sends the check to one member of the producer group, which answers with another request 37. Without an answer
the broker asks again, possibly another member. A 5.x broker may ask up to three seconds after a decision, because it
writes decisions in batches; the producer that decided does not answer such a check.
"""

from __future__ import annotations

import functools
import itertools
import queue as queues
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from rmqclient.backend.transactions import Ask
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.sending.producer_groups import ProducerGroups
from rmqclient.errors import QueueError
from rmqclient.message import ReceivedMessage, SendResult
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import RequestCode, request, request_fields
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log
from rmqclient.store.threads.watched_calls import WatchedCalls
from rmqclient.store.wire import decode_records

_log = Log(__name__)

_COMMIT: Final = 0x8
_ROLLBACK: Final = 0xC
"""[MessageSysFlag.TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE]"""
_MOST_HELD: Final = 2_000
"""Checks that wait for ``ask``, at most; the broker repeats the others. [checkRequestHoldMax]"""
_HANGS_AFTER_S: Final = 10.0
"""A check that takes longer hangs: the next one does not wait for it."""
_MOST_CHECKS: Final = 8
"""Checks beside each other, at most; all but one of them hang."""
_DECIDED_FOR_S: Final = 30.0
"""Seconds for which a decision is remembered. [transactionOpBatchInterval]"""


class _Question(NamedTuple):
    half: ReceivedMessage
    fields: dict[str, object]
    address: str


class Questions:
    """Passes brokers' checks to those producers of one client that answer for the group."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._listeners: dict[str, list[Callable[[_Question], None]]] = {}
        self._changing = threading.Lock()

    def listen(self, group: str, listener: Callable[[_Question], None]) -> None:
        """Pass the checks of a group, by its name on the wire, to ``listener``."""
        self._client.requests.on(RequestCode.CHECK_TRANSACTION_STATE, self._take)
        with self._changing:
            self._listeners.setdefault(group, []).append(listener)

    def stop(self, group: str, listener: Callable[[_Question], None]) -> None:
        """Stop passing checks to ``listener``."""
        with self._changing:
            listeners = self._listeners.get(group, [])
            if listener in listeners:
                listeners.remove(listener)

    def _take(self, asked: Frame, address: str) -> None:
        for half in decode_records(asked.body, delivered=True):
            listeners = self._listeners.get(half.properties.get("PGROUP", ""))
            if listeners:
                listeners[0](_Question(half, request_fields(asked), address))


class ClusterTransactions:
    """The transactions of one producer group. Safe for threads."""

    def __init__(self, client: ClusterClient, groups: ProducerGroups, questions: Questions, group: str) -> None:
        self._client = client
        self._groups = groups
        self._questions = questions
        self._group = client.url.wrap(group)
        self._remembering = threading.Lock()
        self._decided: dict[str, float] = {}
        """Message → monotonic seconds of the decision made here, the oldest first."""
        self._waiting: queues.Queue[_Question | None] = queues.Queue(_MOST_HELD)
        self._thread: threading.Thread | None = None
        self._leave: Callable[[], None] | None = None
        self._calls = WatchedCalls(
            f"check of producer group {group!r}, message", "rmq-check", patience_s=_HANGS_AFTER_S, most=_MOST_CHECKS
        )
        self._closed = threading.Event()
        self.check_usable = client.check_usable

    def decide(self, half: SendResult, *, commit: bool) -> None:
        """Commit a half message or roll it back. A broker does not return the committed message's offset.

        Raises RequestTimedOut and ConnectionLost, after which the decision may or may not have been carried out; the
        AnswerError of a broker that no longer has the half message; BrokerUnreachable.
        """
        topic = self._client.url.wrap(half.queue.topic)
        end_half(self._client, half, self._group, topic, commit=commit, is_checked=False)
        if self._thread is not None:
            self._remember(half.message_id)

    def answer(self, ask: Ask) -> None:
        """Call ``ask`` on a thread of its own for half messages that brokers check."""
        self._leave = self._groups.join(self._group)
        self._thread = GuardedThread(target=self._run, args=(ask,), name="rmq-checks")
        self._thread.start()
        self._questions.listen(self._group, self._take)

    def close(self) -> None:
        """Stop answering checks. Closing twice does nothing."""
        if self._thread is None or self._leave is None or self._closed.is_set():
            return
        self._questions.stop(self._group, self._take)
        self._closed.set()
        self._calls.close()
        self._waiting.put(None)
        self._thread.join()
        self._leave()

    def _take(self, question: _Question) -> None:
        try:
            self._waiting.put_nowait(question)
        except queues.Full:
            _log.warning("%d questions about transactions of group %s wait: one more is left to the next round of the "
                         "broker", _MOST_HELD, self._group)  # fmt: skip

    def _run(self, ask: Ask) -> None:
        while (question := self._waiting.get()) is not None and not self._closed.is_set():
            try:
                self._calls.run(question.half.message_id, functools.partial(self._answer, question, ask))
            except Exception:  # noqa: BLE001 - the broker asks again, and other checks must continue
                _log.exception("a question about message %s was not answered", question.half.message_id)

    def _answer(self, question: _Question, ask: Ask) -> None:
        commit = None if question.half.message_id in self._decided else ask(question.half)
        if commit is not None:
            self._tell(question, commit=commit)

    def _remember(self, message_id: str) -> None:
        now = time.monotonic()
        with self._remembering:
            self._decided[message_id] = now
            for oldest, decided_at in list(itertools.islice(self._decided.items(), 2)):
                if decided_at + _DECIDED_FOR_S < now:  # remove up to two for each new one, so that the table shrinks
                    del self._decided[oldest]

    def _tell(self, question: _Question, *, commit: bool) -> None:
        asked = question.fields
        decision = request(
            RequestCode.END_TRANSACTION,
            producerGroup=self._group,
            tranStateTableOffset=asked["tranStateTableOffset"],
            commitLogOffset=asked["commitLogOffset"],
            commitOrRollback=_COMMIT if commit else _ROLLBACK,
            fromTransactionCheck=True,
            msgId=asked.get("msgId") or question.half.message_id,
            transactionId=asked.get("transactionId"),
            topic=asked.get("topic"),
        )
        try:
            self._client.call(question.address, decision)
        except QueueError as error:
            _log.error("the decision about message %s did not reach broker %s, which asks again: %s",
                       question.half.message_id, question.address, error)  # fmt: skip


def end_half(
    client: ClusterClient,
    half: SendResult | ReceivedMessage,
    group: str,
    topic: str,
    *,
    commit: bool,
    is_checked: bool,
) -> None:
    """Commit a half message or roll it back, at its broker. Names are those on the wire. Raises as a call."""
    decision = request(
        RequestCode.END_TRANSACTION,
        producerGroup=group,
        tranStateTableOffset=half.queue_offset,
        commitLogOffset=half.commit_log_offset,
        commitOrRollback=_COMMIT if commit else _ROLLBACK,
        fromTransactionCheck=is_checked,
        msgId=half.message_id,
        topic=topic,
    )
    client.call(client.brokers.address(half.queue.broker_name), decision)
