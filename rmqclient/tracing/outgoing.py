"""Outgoing: a sender whose sends an observer sees."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta

from rmqclient.backend.futures import SendFuture
from rmqclient.backend.protocols import Buffer, Sender
from rmqclient.message import Message, SendResult
from rmqclient.tracing.observers import Observer, Outgoing, Sending

_log = logging.getLogger(__name__)


class ObservedSender:
    """Tells ``observer`` what ``sender`` appends for a producer ``group``. Copies of received messages are not told."""

    def __init__(self, sender: Sender, observer: Observer, group: str) -> None:
        self._sender = sender
        self._observer = observer
        self._group = group
        self.check_usable = sender.check_usable
        self.encoded = sender.encoded
        self.append_copy = sender.append_copy
        self.cancel = sender.cancel
        self.wait_until_flushed = sender.wait_until_flushed
        self.close = sender.close

    def append(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendResult:
        """Append a message."""

        def send(observed: Message) -> SendResult:
            return self._sender.append(observed, sharding_key, delay_level, due_ms)

        return self._one(message, send, sharding_key, delay_level, due_ms)

    def append_async(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendFuture:
        """Append a message without waiting; the observer learns of the end from the thread that ends the future."""
        sending = self._begin([message], sharding_key, delay_level, due_ms)
        try:
            future = self._sender.append_async(sending.messages[0], sharding_key, delay_level, due_ms)
        except BaseException as error:
            sending.fail(error)
            raise
        future.add_done_callback(lambda done: _tell(sending, done))  # type: ignore[arg-type]
        return future

    def append_batch(
        self, messages: Sequence[Message], sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> list[SendResult]:
        """Append messages of one topic to one queue, all or none."""
        sending = self._begin(messages, sharding_key, delay_level, due_ms, is_batch=True)
        return _ended(sending, lambda: self._sender.append_batch(sending.messages, sharding_key, delay_level, due_ms))

    def append_inner_batch(
        self,
        messages: Sequence[Message],
        pack: Callable[[bytes], tuple[bytes, int]],
        sharding_key: str | None = None,
        *,
        most_bytes: int,
    ) -> list[SendResult]:
        """Append messages as one record."""
        sending = self._begin(messages, sharding_key, is_batch=True)
        append = self._sender.append_inner_batch
        return _ended(sending, lambda: append(sending.messages, pack, sharding_key, most_bytes=most_bytes))

    def append_once(
        self,
        message: Message,
        key: str,
        within: timedelta | None,
        sharding_key: str | None,
        delay_level: int,
        due_ms: int,
    ) -> SendResult:
        """Append a message, unless one was appended with this key before."""

        def send(observed: Message) -> SendResult:
            return self._sender.append_once(observed, key, within, sharding_key, delay_level, due_ms)

        return self._one(message, send, sharding_key, delay_level, due_ms)

    def append_half(
        self, message: Message, group: str, sharding_key: str | None = None, immunity_s: int = 0
    ) -> SendResult:
        """Append the half message of a transaction."""

        def send(observed: Message) -> SendResult:
            return self._sender.append_half(observed, group, sharding_key, immunity_s)

        return self._one(message, send, sharding_key, is_half=True)

    def buffer(self, limit_bytes: int) -> Buffer:
        """Return a buffer; the observer is told of a message when it is put there."""
        return _ObservedBuffer(self._sender.buffer(limit_bytes), self._observer, self._group)

    def _one(
        self,
        message: Message,
        send: Callable[[Message], SendResult],
        sharding_key: str | None,
        delay_level: int = 0,
        due_ms: int = 0,
        *,
        is_half: bool = False,
    ) -> SendResult:
        sending = self._begin([message], sharding_key, delay_level, due_ms, is_half=is_half)
        return _ended(sending, lambda: [send(sending.messages[0])])[0]

    def _begin(
        self,
        messages: Sequence[Message],
        sharding_key: str | None,
        delay_level: int = 0,
        due_ms: int = 0,
        *,
        is_batch: bool = False,
        is_half: bool = False,
    ) -> Sending:
        if not messages or not all(isinstance(message, Message) for message in messages):
            return _Unseen(messages)  # the append refuses it, and says why
        outgoing = Outgoing(messages, self._group, sharding_key, delay_level, due_ms, is_batch, is_half)
        return _begun(self._observer, outgoing)


class _ObservedBuffer:
    """A buffer whose messages an observer sees as they are put there."""

    def __init__(self, buffer: Buffer, observer: Observer, group: str) -> None:
        self._buffer = buffer
        self._observer = observer
        self._group = group
        self.flush = buffer.flush
        self.close = buffer.close

    @property
    def is_closed(self) -> bool:
        """Whether nothing is stored any more."""
        return self._buffer.is_closed

    def add(self, message: Message, sharding_key: str | None) -> None:
        """Take a message."""
        sending = _begun(self._observer, Outgoing([message], self._group, sharding_key, is_buffered=True))
        try:
            self._buffer.add(sending.messages[0], sharding_key)
        except BaseException as error:
            sending.fail(error)
            raise
        _end(sending, [])


class _Unseen:
    """A send that no observer is told of."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages

    def end(self, results: Sequence[SendResult]) -> None:
        """Do nothing."""

    def fail(self, error: BaseException) -> None:
        """Do nothing."""


def _begun(observer: Observer, outgoing: Outgoing) -> Sending:
    try:
        return observer.send(outgoing)
    except Exception:  # noqa: BLE001 - what looks at a message must not make it fail
        _log.exception("a send to topic %s is not traced", outgoing.messages[0].topic)
        return _Unseen(outgoing.messages)


def _ended(sending: Sending, send: Callable[[], list[SendResult]]) -> list[SendResult]:
    try:
        results = send()
    except BaseException as error:
        sending.fail(error)
        raise
    _end(sending, results)
    return results


def _end(sending: Sending, results: list[SendResult]) -> None:
    try:
        sending.end(results)
    except Exception:  # noqa: BLE001 - the messages are stored, which is what the sender has to learn
        _log.exception("the end of a send to topic %s is not traced", sending.messages[0].topic)


def _tell(sending: Sending, done: SendFuture) -> None:
    if done.cancelled():
        _end(sending, [])
    elif (error := done.exception()) is not None:
        sending.fail(error)
    else:
        _end(sending, [done.result()])
