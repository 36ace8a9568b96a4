"""Middleware of sends: functions around each send of a producer.

::

    def stamped(sending: Sending) -> Iterator[None]:
        sending.messages = [signed(message) for message in sending.messages]
        yield                                       # here the messages are stored
        log.info("sent %s", [result.message_id for result in sending.results])

    with Producer("./store", middleware=[stamped]) as producer: ...

The first is the outermost. It surrounds every kind of send: one message, a batch, a half message of a transaction, a
request, a message for the write buffer. An error of the send is raised at the ``yield``. An exception before it stops
the send. Middleware that catches an error must raise it again, or another one: a failed send has no result to return.

After the ``yield`` in :meth:`rmqclient.Producer.send_async` the messages are stored in a store of this host; on a
cluster they may be under way, and ``results`` is empty. Copies for a retry, dead letters and replies are not sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from rmqclient.backend.around import Outgoing, Send, SendAsync, SenderAround
from rmqclient.backend.futures import SendFuture
from rmqclient.backend.protocols import Sender
from rmqclient.errors import QueueError
from rmqclient.message import Message, SendResult


@dataclass(slots=True)
class Sending:
    """One send, as middleware sees it."""

    messages: list[Message]
    """One message, or a batch. Before the ``yield`` they may be replaced, by the same number of the same topic."""
    sharding_key: str | None
    results: list[SendResult] = field(default_factory=list)
    """The results, after the ``yield``; empty for the write buffer, and while a send is under way."""


SendMiddleware: TypeAlias = Callable[[Sending], Iterator[None]]

_Sent = TypeVar("_Sent")


class SurroundedSender(SenderAround):
    """Runs middleware, which are generator functions, around ``sender``; the first is the outermost."""

    def __init__(self, sender: Sender, middleware: Sequence[SendMiddleware]) -> None:
        super().__init__(sender)
        self._managers = [contextmanager(each) for each in middleware]

    def around(self, outgoing: Outgoing, send: Send) -> list[SendResult]:
        """Send inside all middleware."""

        def keep(sending: Sending) -> list[SendResult]:
            sending.results = send(sending.messages)
            return sending.results

        return self._surrounded(outgoing, keep)

    def around_async(self, outgoing: Outgoing, send: SendAsync) -> SendFuture:
        """As :meth:`around`, without waiting."""

        def keep(sending: Sending) -> SendFuture:
            future = send(sending.messages)
            if future.done() and not future.cancelled() and future.exception() is None:
                sending.results = [future.result()]
            return future

        return self._surrounded(outgoing, keep)

    def _surrounded(self, outgoing: Outgoing, send: Callable[[Sending], _Sent]) -> _Sent:
        sending = Sending(list(outgoing.messages), outgoing.sharding_key)
        with ExitStack() as stack:
            for manager in self._managers:
                stack.enter_context(manager(sending))
            return send(sending)
        raise QueueError(
            "middleware of a send swallowed its error, so that there is no result: raise it again, or another one"
        )
