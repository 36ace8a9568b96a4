"""Sender: the forms that a producer's sender takes.

==================  =======================================  ==================================================
form                while                                    a call
==================  =======================================  ==================================================
the backend's own   the producer is open                     appends
compressing         the same, for a producer with a          makes bodies smaller, then appends
                    compression
:data:`CLOSED`      the producer was closed                  raises StoreClosed
:data:`FORKED`      this process is a forked child           raises StoreClosed
==================  =======================================  ==================================================

The backend's own form has no wrapper: a producer without a compression calls the backend directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NoReturn

from rmqclient.backend.futures import SendFuture
from rmqclient.backend.protocols import Sender
from rmqclient.message import Message, SendResult
from rmqclient.sending.compressor import Compressor
from rmqclient.store.errors import StoreClosed


class CompressingSender:
    """Passes bodies through ``compressor`` before ``sender`` appends them."""

    def __init__(self, sender: Sender, compressor: Compressor, max_body_bytes: int) -> None:
        self._sender = sender
        self._compressor = compressor
        self._max_body_bytes = max_body_bytes
        self.check_usable = sender.check_usable
        self.append_inner_batch = sender.append_inner_batch
        self.append_copy = sender.append_copy
        self.cancel = sender.cancel
        self.wait_until_flushed = sender.wait_until_flushed
        self.buffer = sender.buffer
        self.close = sender.close

    def encoded(self, message: Message) -> Message:
        """Return a message with the body that is stored. Raises MessageRejected."""
        return self._compressor.compressed(message, self._max_body_bytes)

    def append(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendResult:
        """Append a message."""
        return self._sender.append(self.encoded(message), sharding_key, delay_level, due_ms)

    def append_async(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendFuture:
        """Append a message without waiting."""
        return self._sender.append_async(self.encoded(message), sharding_key, delay_level, due_ms)

    def append_batch(
        self, messages: Sequence[Message], sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> list[SendResult]:
        """Append messages of one topic to one queue, all or none."""
        return self._sender.append_batch([self.encoded(each) for each in messages], sharding_key, delay_level, due_ms)

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
        return self._sender.append_once(self.encoded(message), key, within, sharding_key, delay_level, due_ms)

    def append_half(
        self, message: Message, group: str, sharding_key: str | None = None, immunity_s: int = 0
    ) -> SendResult:
        """Append the half message of a transaction."""
        return self._sender.append_half(self.encoded(message), group, sharding_key, immunity_s)


class RefusingSender:
    """Raises StoreClosed at every call, and says why."""

    def __init__(self, why: str) -> None:
        self._why = why
        self.check_usable = self.encoded = self.cancel = self.wait_until_flushed = self.buffer = self._refuse
        self.append = self.append_batch = self.append_inner_batch = self.append_once = self._refuse
        self.append_half = self.append_copy = self.append_async = self._refuse

    def close(self) -> None:
        """Do nothing: this is closed."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise StoreClosed(self._why)


CLOSED = RefusingSender("this producer was closed")
FORKED = RefusingSender("this producer belongs to the process that this one was forked from: make one in this process")
