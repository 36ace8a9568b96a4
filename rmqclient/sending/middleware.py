"""Middleware of sends: functions around each send of a producer.

::

    def stamped(sending: Sending) -> Iterator[None]:
        sending.messages = [signed(message) for message in sending.messages]
        yield                                       # here the messages are stored
        log.info("sent %s", [result.message_id for result in sending.results])

    with Producer("./store", middleware=[stamped]) as producer: ...

The first is the outermost. It surrounds every way to send: one message, a batch, a half message of a transaction, a
request, a message into the write buffer. An error of the send is raised at the ``yield``. What it raises before that
stops the send. It must raise what it catches, or raise another error: a send that failed has no result to return.

Behind the ``yield`` of :meth:`rmqclient.Producer.send_async` the messages are stored in a store of this host; on a
cluster they may be under way, and ``results`` is empty. Copies for a retry, dead letters and replies are no sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from rmqclient.backend.futures import SendFuture
from rmqclient.backend.protocols import Buffer, Sender
from rmqclient.errors import QueueError
from rmqclient.message import Message, SendResult


@dataclass(slots=True)
class Sending:
    """One send, as middleware sees it."""

    messages: list[Message]
    """What is sent: one message, or a batch. Before the ``yield`` they may be replaced, by as many of their topic."""
    sharding_key: str | None
    results: list[SendResult] = field(default_factory=list)
    """Where the messages stand, behind the ``yield``; empty for the write buffer, and while a send is under way."""


SendMiddleware: TypeAlias = Callable[[Sending], Iterator[None]]


class SurroundedSender:
    """Runs middleware around ``sender``; the functions are generator functions, the outermost first."""

    def __init__(self, sender: Sender, middleware: Sequence[SendMiddleware]) -> None:
        self._sender = sender
        self._managers = [contextmanager(each) for each in middleware]
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
        return self._one(
            message, sharding_key, lambda each: self._sender.append(each, sharding_key, delay_level, due_ms)
        )

    def append_async(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendFuture:
        """Append a message without waiting."""

        def append(sending: Sending) -> SendFuture:
            future = self._sender.append_async(sending.messages[0], sharding_key, delay_level, due_ms)
            if future.done() and not future.cancelled() and future.exception() is None:
                sending.results = [future.result()]
            return future

        found: SendFuture = self._surround([message], sharding_key, append)
        return found

    def append_batch(
        self, messages: Sequence[Message], sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> list[SendResult]:
        """Append messages of one topic to one queue, all or none."""
        return self._many(
            messages, sharding_key, lambda all_: self._sender.append_batch(all_, sharding_key, delay_level, due_ms)
        )

    def append_inner_batch(
        self,
        messages: Sequence[Message],
        pack: Callable[[bytes], tuple[bytes, int]],
        sharding_key: str | None = None,
        *,
        most_bytes: int,
    ) -> list[SendResult]:
        """Append messages as one record."""
        return self._many(
            messages,
            sharding_key,
            lambda all_: self._sender.append_inner_batch(all_, pack, sharding_key, most_bytes=most_bytes),
        )

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
        return self._one(
            message,
            sharding_key,
            lambda each: self._sender.append_once(each, key, within, sharding_key, delay_level, due_ms),
        )

    def append_half(
        self, message: Message, group: str, sharding_key: str | None = None, immunity_s: int = 0
    ) -> SendResult:
        """Append the half message of a transaction."""
        return self._one(
            message, sharding_key, lambda each: self._sender.append_half(each, group, sharding_key, immunity_s)
        )

    def buffer(self, limit_bytes: int) -> Buffer:
        """Return a buffer whose messages middleware sees when they are put into it."""
        return _SurroundedBuffer(self._sender.buffer(limit_bytes), self._surround)

    def _one(self, message: Message, sharding_key: str | None, append: Callable[[Message], SendResult]) -> SendResult:
        return self._many([message], sharding_key, lambda messages: [append(messages[0])])[0]

    def _many(
        self,
        messages: Sequence[Message],
        sharding_key: str | None,
        append: Callable[[list[Message]], list[SendResult]],
    ) -> list[SendResult]:
        def send(sending: Sending) -> list[SendResult]:
            sending.results = append(sending.messages)
            return sending.results

        found: list[SendResult] = self._surround(messages, sharding_key, send)
        return found

    def _surround(self, messages: Sequence[Message], sharding_key: str | None, send: Callable[[Sending], Any]) -> Any:
        sending = Sending(list(messages), sharding_key)
        with ExitStack() as stack:
            for manager in self._managers:
                stack.enter_context(manager(sending))
            return send(sending)
        raise QueueError(
            "middleware of a send swallowed its error, so that there is no result: raise it again, or another one"
        )


class _SurroundedBuffer:
    """A buffer with middleware around what is put into it."""

    def __init__(self, buffer: Buffer, surround: Callable[..., Any]) -> None:
        self._buffer = buffer
        self._surround = surround
        self.flush = buffer.flush
        self.close = buffer.close

    @property
    def is_closed(self) -> bool:
        """Whether nothing is stored any more."""
        return self._buffer.is_closed

    def add(self, message: Message, sharding_key: str | None) -> None:
        """Take a message."""
        self._surround([message], sharding_key, lambda sending: self._buffer.add(sending.messages[0], sharding_key))
