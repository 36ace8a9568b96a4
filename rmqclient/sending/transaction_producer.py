"""Transaction producer: delivers a message if and only if some other work is done.

::

    with producer.transaction(Message("orders", body)) as tx:     # stored, but not delivered
        ...                                                       # the work
                                                                  # the end commits, an exception rolls back

A producer that dies in the block leaves an undecided transaction. The backend then asks one of the group's producers
that have a ``check`` (:mod:`rmqclient.backend.transactions`).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from rmqclient.duration import Duration, in_seconds
from rmqclient.errors import HandlerError
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.opening import Place
from rmqclient.sending.arguments import check_message, meant
from rmqclient.sending.compressor import OVER_BYTES
from rmqclient.sending.middleware import SendMiddleware
from rmqclient.sending.producer import Producer
from rmqclient.store import StoreConfig, check_client_id
from rmqclient.store.bodies import Compression
from rmqclient.store.errors import QueueError, TransactionDecided
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class Decision(enum.Enum):
    """The decision about a transaction. [LocalTransactionState]"""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"
    """Not known yet; the store asks again later."""


Execute = Callable[[Message, object], Decision]
Check = Callable[[ReceivedMessage], Decision]


class TransactionResult(NamedTuple):
    """The outcome of :meth:`TransactionProducer.send_in_transaction`."""

    decision: Decision
    message_id: str
    sent: SendResult | None
    """The committed message; None if it was not committed."""


class Transaction:
    """One transaction, from its half message to its end. A context manager. For one thread."""

    def __init__(self, producer: TransactionProducer, half: SendResult) -> None:
        self._producer = producer
        self._half = half
        self._ended: Decision | None = None

    @property
    def message_id(self) -> str:
        """Id of the message, the same before and after it is committed."""
        return self._half.message_id

    @property
    def decision(self) -> Decision | None:
        """The decision made here; None before that."""
        return self._ended

    def commit(self) -> SendResult | None:
        """Store the message for its handlers, exactly once; return its offsets.

        Returns None if the message was committed before: here, by a check, or by hand. Raises TransactionDecided if it
        was rolled back. Raises as a send; then the transaction is still undecided.
        """
        return self._end(Decision.COMMIT)

    def rollback(self) -> None:
        """Drop the message. Raises TransactionDecided if it was committed, and as a send."""
        self._end(Decision.ROLLBACK)

    def leave(self) -> None:
        """Leave the transaction undecided: the store will call the ``check`` of a producer of the group."""
        if self._ended is None:
            self._ended = Decision.UNKNOWN

    def _end(self, decision: Decision) -> SendResult | None:
        sent = None
        if self._ended is not decision:
            try:
                sent = self._producer.decide(self._half, decision)
            except TransactionDecided as error:
                self._ended = Decision.COMMIT if error.committed else Decision.ROLLBACK
                if self._ended is not decision:
                    raise
            self._ended = decision
        return sent

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended is not None:
            return
        if error is None:
            self.commit()
            return
        try:
            self.rollback()
        except QueueError as failure:  # raise the first error; a check will decide
            _log.error("message %s could not be rolled back and is undecided: %s", self.message_id, failure)


class TransactionProducer(Producer):
    """A producer whose messages can be sent in transactions.

    ``group`` names the producers of one application: any of them answers for all. ``check(message)`` is called, on a
    thread of its own, with an undecided message of the group, after six seconds or its ``immunity``. It returns the
    decision, :attr:`Decision.UNKNOWN` if it cannot tell yet. An exception is logged, and counts as UNKNOWN. When a call
    takes more than ten seconds, this is logged, and the next call runs beside it, on up to eight threads.
    ``execute(message, argument)`` is for :meth:`send_in_transaction`.

    Without ``check`` this producer answers nothing. A transaction that nothing decides is given up after fifteen
    checks, to ``TRANS_CHECK_MAX_TIME_TOPIC``, where a person decides it: ``rmq tx``.
    """

    def __init__(
        self,
        root: Place,
        *,
        group: str,
        execute: Execute | None = None,
        check: Check | None = None,
        client_id: str | None = None,
        config: StoreConfig | None = None,
        compression: Compression | None = None,
        compress_over_bytes: int = OVER_BYTES,
        compression_level: int | None = None,
        message_trace: bool = False,
        middleware: Sequence[SendMiddleware] = (),
    ) -> None:
        for name, function in (("execute", execute), ("check", check)):
            if function is not None and not callable(function):
                raise TypeError(f"{name}={function!r}: give a function, or None")
        if client_id is not None:
            check_client_id(client_id)
        super().__init__(
            root,
            group=group,
            config=config,
            compression=compression,
            compress_over_bytes=compress_over_bytes,
            compression_level=compression_level,
            message_trace=message_trace,
            middleware=middleware,
        )
        self._execute = execute
        self._check = check
        try:
            self._transactions = self._backend.producers.transactions(self._settings()._replace(client_id=client_id))
            if check is not None:
                self._transactions.answer(self._ask)
        except BaseException:
            super().close()
            raise

    def transaction(
        self,
        message: Message | str,
        second: Any = None,
        /,
        sharding_key: str | None = None,
        *,
        key: str | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        immunity: Duration | None = None,
    ) -> Transaction:
        """Store the half message of a transaction, which is not delivered before it is committed.

        ``transaction(message, sharding_key)`` sends a Message, ``transaction(topic, body)`` makes one, as
        :meth:`Producer.send` does. Its queue is chosen now.

        ``immunity``, a timedelta or seconds, rounded up to whole seconds, is the time before the first
        ``check`` [CHECK_IMMUNITY_TIME_IN_SECONDS]; default: six seconds. Raises as :meth:`Producer.send`.
        """
        message, sharding_key = meant(message, second, None, sharding_key, key, tags, properties)
        check_message(message, "transaction")
        seconds = 0 if immunity is None else math.ceil(in_seconds("immunity", immunity))
        half = self._sender.append_half(message, self.group, sharding_key, seconds)
        if self._is_sync:
            self._sender.wait_until_flushed(half.commit_log_end)
        return Transaction(self, half)

    def send_in_transaction(
        self,
        message: Message,
        argument: object = None,
        sharding_key: str | None = None,
        *,
        immunity: Duration | None = None,
    ) -> TransactionResult:
        """Store the half message, call ``execute``, and carry out its decision (sendMessageInTransaction).

        If ``execute`` raises, this raises the same error, and the transaction stays undecided, because the work may be
        done: ``check`` decides. Raises HandlerError without ``execute`` or if that returns no Decision, and as
        :meth:`transaction`.
        """
        if self._execute is None:
            raise HandlerError("this producer has no execute: make it with execute=, or use transaction()")
        check_message(message, "send_in_transaction")
        begun = self.transaction(message, sharding_key, immunity=immunity)
        decision = self._execute(message, argument)
        if not isinstance(decision, Decision):
            raise HandlerError(
                f"execute returned {decision!r} for message {begun.message_id}: return a Decision; the transaction is "
                "undecided"
            )
        sent = None
        if decision is Decision.COMMIT:
            sent = begun.commit()
        elif decision is Decision.ROLLBACK:
            begun.rollback()
        return TransactionResult(decision, begun.message_id, sent)

    def decide(self, half: SendResult, decision: Decision) -> SendResult | None:
        """Commit or roll back a half message.

        Returns the committed message's offsets, None after a rollback. Raises TransactionDecided, MessageExpired, and
        as a send.
        """
        sent = self._transactions.decide(half, commit=decision is Decision.COMMIT)
        for observer in self._observers:
            observer.decide(half, self.group, commit=decision is Decision.COMMIT)
        return sent

    def close(self) -> None:
        """End the checks, waiting up to ten seconds for running ones, and leave the store.

        Closing twice does nothing.
        """
        self._transactions.close()
        super().close()

    def _ask(self, half: ReceivedMessage) -> bool | None:
        """Return the decision of ``check`` about a half message. Never raises, because others must be checked, too."""
        assert self._check is not None
        try:
            decision = self._check(half)
        except BaseException:  # noqa: BLE001 - application code; SystemExit would end this thread
            _log.exception("check of producer group %r failed for message %s", self.group, half.message_id)
            return None
        if decision is Decision.UNKNOWN:
            return None
        if isinstance(decision, Decision):
            for observer in self._observers:
                observer.decide(half, self.group, commit=decision is Decision.COMMIT)
            return decision is Decision.COMMIT
        _log.error("check of producer group %r returned %r: return a Decision", self.group, decision)
        return None
