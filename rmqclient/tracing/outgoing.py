"""Outgoing: a sender whose sends an observer sees."""

from __future__ import annotations

from collections.abc import Sequence

from rmqclient.backend.around import Outgoing, Send, SendAsync, SenderAround
from rmqclient.backend.futures import SendFuture
from rmqclient.backend.protocols import Sender
from rmqclient.message import Message, SendResult
from rmqclient.store.threads.logs import Log
from rmqclient.tracing.observers import Observer, Sending, observers_of_table

_log = Log(__name__)


def carrying(outgoing: Outgoing) -> Message:
    """Return the one message of ``outgoing`` as observers want it to be kept in a table, until a relay sends it."""
    for observer in observers_of_table():
        sending = _begun(observer, outgoing)
        _end(sending, [])
        outgoing = outgoing._replace(messages=sending.messages)
    return outgoing.messages[0]


class ObservedSender(SenderAround):
    """Tells ``observer`` what ``sender`` appends. Copies of received messages are not told."""

    def __init__(self, sender: Sender, observer: Observer) -> None:
        super().__init__(sender)
        self._observer = observer

    def around(self, outgoing: Outgoing, send: Send) -> list[SendResult]:
        """Send, and tell the observer of the end."""
        sending = _begun(self._observer, outgoing)
        try:
            results = send(sending.messages)
        except BaseException as error:
            sending.fail(error)
            raise
        _end(sending, results)
        return results

    def around_async(self, outgoing: Outgoing, send: SendAsync) -> SendFuture:
        """Send; the observer learns of the end from the thread that ends the future."""
        sending = _begun(self._observer, outgoing)
        try:
            future = send(sending.messages)
        except BaseException as error:
            sending.fail(error)
            raise
        future.add_done_callback(lambda done: _tell(sending, done))  # type: ignore[arg-type]
        return future


def _begun(observer: Observer, outgoing: Outgoing) -> Sending:
    messages = outgoing.messages
    if not messages or not all(isinstance(message, Message) for message in messages):
        return _Unseen(messages)  # the append refuses it, and says why
    try:
        return observer.send(outgoing)
    except Exception:  # noqa: BLE001 - what looks at a message must not make it fail
        _log.exception("a send to topic %s is not traced", messages[0].topic)
        return _Unseen(messages)


class _Unseen:
    """A send that no observer is told of."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages

    def end(self, results: Sequence[SendResult]) -> None:
        """Do nothing."""

    def fail(self, error: BaseException) -> None:
        """Do nothing."""


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
