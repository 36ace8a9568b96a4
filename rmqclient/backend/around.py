"""Around: a sender whose sends all go through one method.

A wrapper that compresses, observes or surrounds sends is a :class:`SenderAround` that overrides two methods, which
cover all kinds of sends and the buffer. Copies of received messages are not sends and bypass it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NamedTuple, TypeAlias

from rmqclient.backend.futures import SendFuture
from rmqclient.backend.protocols import Buffer, Sender
from rmqclient.message import Message, SendResult


class Outgoing(NamedTuple):
    """The messages and options of one call."""

    messages: Sequence[Message]
    """The caller's messages, not yet checked."""
    sharding_key: str | None = None
    delay_level: int = 0
    due_ms: int = 0
    """Time of delivery, in ms since 1970; 0 for at once."""
    is_batch: bool = False
    is_record: bool = False
    """Whether the batch is stored as one compressed record."""
    is_half: bool = False
    """Whether it is the half message of a transaction."""
    is_buffered: bool = False
    """Whether it is stored later, without a result."""


Send: TypeAlias = Callable[[Sequence[Message]], list[SendResult]]
"""Sends messages with the options of the call. Returns no results for messages for a buffer."""
SendAsync: TypeAlias = Callable[[Sequence[Message]], SendFuture]


class SenderAround(ABC):
    """A :class:`rmqclient.backend.protocols.Sender` around another one."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.check_usable = sender.check_usable
        self.encoded = sender.encoded
        self.append_copy = sender.append_copy
        self.cancel = sender.cancel
        self.wait_until_flushed = sender.wait_until_flushed
        self.close = sender.close

    @abstractmethod
    def around(self, outgoing: Outgoing, send: Send) -> list[SendResult]:
        """Call ``send`` once, with the messages or the same number of others of their topic; return its result."""

    @abstractmethod
    def around_async(self, outgoing: Outgoing, send: SendAsync) -> SendFuture:
        """As :meth:`around`, for a send that may be under way when ``send`` returns."""

    def append(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendResult:
        """Append a message."""
        append = self._sender.append
        return self.around(
            Outgoing((message,), sharding_key, delay_level, due_ms),
            lambda messages: [append(messages[0], sharding_key, delay_level, due_ms)],
        )[0]

    def append_async(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendFuture:
        """Append a message without waiting."""
        append = self._sender.append_async
        return self.around_async(
            Outgoing((message,), sharding_key, delay_level, due_ms),
            lambda messages: append(messages[0], sharding_key, delay_level, due_ms),
        )

    def append_batch(
        self, messages: Sequence[Message], sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> list[SendResult]:
        """Append messages of one topic to one queue, all or none."""
        append = self._sender.append_batch
        return self.around(
            Outgoing(messages, sharding_key, delay_level, due_ms, is_batch=True),
            lambda messages: append(messages, sharding_key, delay_level, due_ms),
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
        append = self._sender.append_inner_batch
        return self.around(
            Outgoing(messages, sharding_key, is_batch=True, is_record=True),
            lambda messages: append(messages, pack, sharding_key, most_bytes=most_bytes),
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
        append = self._sender.append_once
        return self.around(
            Outgoing((message,), sharding_key, delay_level, due_ms),
            lambda messages: [append(messages[0], key, within, sharding_key, delay_level, due_ms)],
        )[0]

    def append_half(
        self, message: Message, group: str, sharding_key: str | None = None, immunity_s: int = 0
    ) -> SendResult:
        """Append the half message of a transaction."""
        append = self._sender.append_half
        return self.around(
            Outgoing((message,), sharding_key, is_half=True),
            lambda messages: [append(messages[0], group, sharding_key, immunity_s)],
        )[0]

    def buffer(self, limit_bytes: int) -> Buffer:
        """Return a buffer; a message goes through :meth:`around` when it is put there."""
        return _BufferAround(self._sender.buffer(limit_bytes), self.around)


class _BufferAround:
    """A buffer whose messages go through :meth:`SenderAround.around`."""

    def __init__(self, buffer: Buffer, around: Callable[[Outgoing, Send], list[SendResult]]) -> None:
        self._buffer = buffer
        self._around = around
        self.flush = buffer.flush
        self.close = buffer.close

    @property
    def is_closed(self) -> bool:
        """Whether it is closed."""
        return self._buffer.is_closed

    def add(self, message: Message, sharding_key: str | None) -> None:
        """Add a message."""

        def put(messages: Sequence[Message]) -> list[SendResult]:
            self._buffer.add(messages[0], sharding_key)
            return []

        self._around(Outgoing((message,), sharding_key, is_buffered=True), put)
