"""Transactions: decisions about half messages, by request 37. [EndTransactionProcessor of 4.9.7]

The store decides each transaction once (:mod:`rmqclient.store.waiting.transaction`): a repeated decision is answered
like the first one, and the opposite one is refused. A RocketMQ broker would commit a second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rmqclient.broker.producers.questions import Questions
from rmqclient.broker.request import Request
from rmqclient.broker.routes import ADMINISTRATOR, ASKED_BY_HANDLER, Route
from rmqclient.broker.sending.flushes import Flushes
from rmqclient.broker.sending.retries import record_at
from rmqclient.broker.settings import ServeSettings
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.frame import Frame
from rmqclient.store import HALF_TOPIC, MessageStore, ReceivedMessage
from rmqclient.store.errors import TransactionDecided
from rmqclient.store.waiting.half_messages import group_of
from rmqclient.store.waiting.real_queue import real_queue
from rmqclient.store.wire import parse_offset_id

_COMMIT: Final = 0x8
_ROLLBACK: Final = 0xC
"""[MessageSysFlag.TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE]"""


class Transactions:
    """Carries out the decisions of producers."""

    def __init__(self, store: MessageStore, settings: ServeSettings, flushes: Flushes, questions: Questions) -> None:
        self._store = store
        self._settings = settings
        self._flushes = flushes
        self._questions = questions

    def routes(self) -> Iterable[Route]:
        """Declare decisions. They are slow, because one may wait for a running round of checks."""
        yield Route(RequestCode.END_TRANSACTION, self._end, needs=ASKED_BY_HANDLER, writes=True, slow=True)
        yield Route(RequestCode.RESUME_CHECK_HALF_MESSAGE, self._ask_again, needs=ADMINISTRATOR, writes=True, slow=True)

    def _end(self, request: Request) -> Frame | None:
        decision: int = request.fields["commitOrRollback"]
        if decision not in (_COMMIT, _ROLLBACK):
            return None  # the producer does not know yet; it is asked again later
        if self._settings.read_only:
            raise AnswerError(ResponseCode.NO_PERMISSION, "this server is for reading only")
        half = self._half(request)
        try:
            end = self._store.transactions.decide(half, commit=decision == _COMMIT).commit_log_end
        except TransactionDecided as error:
            if error.committed != (decision == _COMMIT):
                raise AnswerError(ResponseCode.SYSTEM_ERROR, str(error)) from None
            end = self._store.state.published_to
        return self._flushes.when_flushed(request, request.success(), end)

    def _half(self, request: Request) -> ReceivedMessage:
        """Return the half message of a decision, checked as by a broker. Raises AnswerError."""
        fields = request.fields
        half = record_at(self._store, fields["commitLogOffset"])
        if half is None or half.topic != HALF_TOPIC:
            raise AnswerError(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if group_of(half) != fields["producerGroup"]:
            raise AnswerError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != fields["tranStateTableOffset"]:
            raise AnswerError(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        queue = real_queue(half)
        request.check_topic(half.topic if queue is None else queue.topic, writes=True)
        return half

    def _ask_again(self, request: Request) -> Frame:
        """Ask the producers about a half message now. [AdminBrokerProcessor.resumeCheckHalfMessage]"""
        try:
            offset = parse_offset_id(request.fields.get("msgId", "")).commit_log_offset
        except ValueError as error:
            raise AnswerError(ResponseCode.SYSTEM_ERROR, str(error)) from None
        half = record_at(self._store, offset)
        if half is None or half.topic != HALF_TOPIC:
            raise AnswerError(ResponseCode.SYSTEM_ERROR, f"no half message has the id {request.fields['msgId']}")
        self._questions.ask(half)
        return request.success()
