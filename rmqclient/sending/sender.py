"""Sender: the forms of a producer's sender.

==================  =======================================  ==================================================
form                while                                    a call
==================  =======================================  ==================================================
the backend's own   the producer is open                     appends
compressing         the same, for a producer with a          makes bodies smaller, then appends
                    compression
observed            the same, for each observer, such as     appends, and passes the results to the observer
                    a message trace                          (:mod:`rmqclient.tracing.outgoing`)
surrounded          the same, for a producer with            runs the middleware, and appends inside it
                    middleware                               (:mod:`rmqclient.sending.middleware`)
:data:`CLOSED`      the producer was closed                  raises StoreClosed
:data:`FORKED`      this process is a forked child           raises StoreClosed
==================  =======================================  ==================================================

The backend's own form has no wrapper: a producer without the others calls the backend directly. Each of the others is
a :class:`rmqclient.backend.around.SenderAround` around the one before it in the table.
"""

from __future__ import annotations

from typing import NoReturn

from rmqclient.backend.around import Outgoing, Send, SendAsync, SenderAround
from rmqclient.backend.futures import SendFuture
from rmqclient.backend.protocols import Sender
from rmqclient.message import Message, SendResult
from rmqclient.sending.compressor import Compressor
from rmqclient.store.errors import StoreClosed


class CompressingSender(SenderAround):
    """Compresses bodies by ``compressor`` before ``sender`` appends them."""

    def __init__(self, sender: Sender, compressor: Compressor, max_body_bytes: int) -> None:
        super().__init__(sender)
        self._compressor = compressor
        self._max_body_bytes = max_body_bytes
        self.encoded = self._compressed

    def around(self, outgoing: Outgoing, send: Send) -> list[SendResult]:
        """Compress and send. Messages for a buffer were compressed by :attr:`encoded` before."""
        if outgoing.is_record or outgoing.is_buffered:
            return send(outgoing.messages)
        return send([self._compressed(each) for each in outgoing.messages])

    def around_async(self, outgoing: Outgoing, send: SendAsync) -> SendFuture:
        """As :meth:`around`, without waiting."""
        return send([self._compressed(each) for each in outgoing.messages])

    def append(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendResult:
        """As :meth:`around`, for one message, in fewer calls, because most sends come here."""
        return self._sender.append(self._compressed(message), sharding_key, delay_level, due_ms)

    def append_async(
        self, message: Message, sharding_key: str | None = None, delay_level: int = 0, due_ms: int = 0
    ) -> SendFuture:
        """As :meth:`append`, without waiting."""
        return self._sender.append_async(self._compressed(message), sharding_key, delay_level, due_ms)

    def _compressed(self, message: Message) -> Message:
        """Return a message with its body compressed. Raises MessageRejected."""
        return self._compressor.compressed(message, self._max_body_bytes)


class RefusingSender:
    """Raises StoreClosed, with the reason, at every call."""

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
