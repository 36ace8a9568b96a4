"""Protocols of a backend: the interface of producers and consumers to a store or a cluster.

===========================================  ============================================================
:class:`Backend`                             topics, queues, reading, and access to the others
:class:`Sender`                              appends messages
:mod:`rmqclient.backend.transactions`        decides about half messages
:mod:`rmqclient.backend.replies`             receives and sends replies
:mod:`rmqclient.backend.group_protocols`     members of groups, and their queues
:mod:`rmqclient.backend.bells`               wake a thread when a group changes, or when messages arrive
===========================================  ============================================================

The store's own objects satisfy them structurally. Messages have one shape everywhere,
:class:`rmqclient.message.ReceivedMessage`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

from rmqclient.backend.futures import SendFuture
from rmqclient.message import Message, ReceivedMessage, SendResult


class Buffer(Protocol):
    """Messages of one process that are not stored yet. Safe for threads."""

    @property
    def is_closed(self) -> bool:
        """Whether it is closed."""

    def add(self, message: Message, sharding_key: str | None) -> None:
        """Add a message, whose body must be bytes. Raises as a send of it."""

    def flush(self) -> int:
        """Store every message now; return their number. Raises as a send."""

    def close(self) -> None:
        """Store every message and stop. Raises as a send; the buffer stays open if a later call may succeed."""


class Sender(Protocol):
    """Appends messages. Safe for threads. Every method raises as :meth:`rmqclient.Producer.send`."""

    def check_usable(self) -> None:
        """Raise StoreClosed if the sender can no longer be used."""

    def encoded(self, message: Message) -> Message:
        """Return a message with its encoded body, as bytes. Raises MessageRejected."""

    def append(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendResult:
        """Append a message. ``due_ms`` is its time of delivery, in ms since 1970; 0 for at once."""

    def append_async(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendFuture:
        """As :meth:`append`, but never wait for a disk or a network.

        The future ends when a send would return. Errors that are known at once are raised here.
        """

    def append_batch(
        self, messages: Sequence[Message], sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> list[SendResult]:
        """Append messages of one topic to one queue, all or none."""

    def append_once(
        self,
        message: Message,
        key: str,
        within: timedelta | None,
        sharding_key: str | None,
        delay_level: int,
        due_ms: int,
    ) -> SendResult:
        """Append a message, which already has the key, unless one was appended with this key before.

        ``within`` limits the age of the earlier one; the result says which of both happened.
        """

    def append_inner_batch(
        self,
        messages: Sequence[Message],
        pack: Callable[[bytes], tuple[bytes, int]],
        sharding_key: str | None = None,
        *,
        most_bytes: int,
    ) -> list[SendResult]:
        """Append messages as one record, whose body ``pack`` compresses. Raises BatchTooLarge, too."""

    def append_half(
        self, message: Message, group: str, sharding_key: str | None = None, immunity_s: int = 0
    ) -> SendResult:
        """Append the half message of a transaction of a producer group."""

    def append_copy(
        self,
        message: ReceivedMessage,
        topic: str,
        queue_id: int,
        properties: Mapping[str, str],
        *,
        reconsume_times: int,
        delay_level: int = 0,
        due_ms: int = 0,
    ) -> SendResult:
        """Append a copy of a received message to a queue of a topic, with exactly these properties."""

    def cancel(self, message_id: str) -> bool:
        """Cancel a timer message. False if it does not wait."""

    def wait_until_flushed(self, commit_log_end: int | None = None) -> None:
        """Wait until the log is on disk up to an offset; None for its current end.

        Raises NotFlushed, StorePoisoned.
        """

    def buffer(self, limit_bytes: int) -> Buffer:
        """Return a buffer of this process, with ``limit_bytes`` of messages at most."""

    def close(self) -> None:
        """Wait for every :meth:`append_async`. Closing twice does nothing."""


class Span(NamedTuple):
    """The range of offsets that a queue has."""

    min_offset: int
    """Queue offset of the oldest message."""
    max_offset: int
    """Queue offset of the next message to be stored."""
