"""Message trace: RocketMQ's own, which its dashboard and ``mqadmin queryMsgTraceById`` show. [MessageTrace]

An observer that writes a record for each message sent, for each call of a handler with it, before and after, and for
each transaction that was decided. ``records`` has what they say, ``dispatcher`` how they are sent.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rmqclient.backend.around import Outgoing
from rmqclient.backend.backend import Backend
from rmqclient.codecs import encoded
from rmqclient.handler import Handler
from rmqclient.message import Message, ReceivedMessage, SendResult
from rmqclient.store.errors import MessageRejected
from rmqclient.store.native_threads import threading
from rmqclient.tracing.dispatcher import Dispatcher
from rmqclient.tracing.records import EndTransaction, Kind, Outcome, Pub, SubAfter, SubBefore

_MOST_HALVES = 10_000
"""Undecided messages whose tags and keys are kept for the record of their decision."""
_IPV4_ID_DIGITS = 32
_NO_BROKER = "7F00000100002A9F"


class MessageTrace:
    """Traces one producer or consumer. ``group`` is that of the producer, or any of a consumer's."""

    def __init__(self, backend: Backend, group: str) -> None:
        self._group = group
        self._dispatcher = Dispatcher(backend, group)
        self._halves: OrderedDict[str, Message] = OrderedDict()
        self._keeping = threading.Lock()

    @property
    def dropped(self) -> int:
        """Records that were dropped: too many waited, or they could not be sent."""
        return self._dispatcher.dropped

    def send(self, outgoing: Outgoing) -> _TracedSend:
        """Begin to watch a send. Messages of a buffer, of which nobody learns where they stand, have no record."""
        return _TracedSend(self, outgoing)

    def sent(
        self,
        outgoing: Outgoing,
        messages: Sequence[Message],
        begun_ms: int,
        cost_ms: int,
        results: Sequence[SendResult],
    ) -> None:
        """Write a record for each message of a send that began at ``begun_ms``, in ms since 1970."""
        for message, result in zip(messages, results, strict=True):
            if outgoing.is_half:
                self._keep(result.message_id, message)
            place = _place_of(result)
            self._dispatcher.put(
                Pub(
                    at_ms=begun_ms,
                    group=self._group,
                    topic=message.topic,
                    message_id=result.message_id,
                    tags=message.tags,
                    keys=tuple(message.keys),
                    store_host=host_of(place),
                    body_bytes=len(message.body) if isinstance(message.body, bytes) else 0,
                    cost_ms=cost_ms,
                    kind=_kind_of(outgoing),
                    offset_message_id=place,
                    success=True,
                )
            )

    def receive(self, group: str, messages: Sequence[ReceivedMessage], begun_ns: int) -> None:
        """Write nothing: RocketMQ has no record of pulls."""

    @contextmanager
    def process(self, handler: Handler, messages: Sequence[ReceivedMessage]) -> Iterator[None]:
        """Write what a call of a handler does with each of its messages."""
        request_id, begun, now = uuid.uuid4().hex, time.monotonic(), _now_ms()
        for each in messages:
            retries = each.delivery_attempt - 1
            self._dispatcher.put(SubBefore(now, handler.group, request_id, each.message_id, retries, tuple(each.keys)))
        outcome = Outcome.EXCEPTION
        try:
            yield
            outcome = Outcome.SUCCESS
        finally:
            cost_ms = _ms_since(begun) // len(messages)  # as Java: the call's time is shared out
            for each in messages:
                self._dispatcher.put(
                    SubAfter(
                        at_ms=_now_ms(),
                        group=handler.group,
                        request_id=request_id,
                        message_id=each.message_id,
                        keys=tuple(each.keys),
                        cost_ms=cost_ms,
                        success=outcome is Outcome.SUCCESS,
                        outcome=outcome,
                    )
                )

    def decide(self, half: SendResult | ReceivedMessage, group: str, *, commit: bool) -> None:
        """Write that a transaction was decided."""
        with self._keeping:
            known = self._halves.pop(half.message_id, None)
        message = half if isinstance(half, ReceivedMessage) else known
        if message is None:
            return
        self._dispatcher.put(
            EndTransaction(
                at_ms=_now_ms(),
                group=group,
                topic=message.topic,
                message_id=half.message_id,
                tags=message.tags,
                keys=tuple(message.keys),
                store_host=host_of(_place_of(half)),
                commit=commit,
                from_check=isinstance(half, ReceivedMessage),
            )
        )

    def close(self) -> None:
        """Send what waits, for at most three seconds. Closing twice does nothing."""
        self._dispatcher.close()

    def _keep(self, message_id: str, message: Message) -> None:
        with self._keeping:
            self._halves[message_id] = message
            if len(self._halves) > _MOST_HALVES:
                self._halves.popitem(last=False)


class _TracedSend:
    """One send that is under way."""

    def __init__(self, trace: MessageTrace, outgoing: Outgoing) -> None:
        self.messages = [_encoded(message) for message in outgoing.messages]  # once, to learn their sizes
        self._trace = trace
        self._outgoing = outgoing
        self._begun_ms, self._begun = _now_ms(), time.monotonic()

    def end(self, results: Sequence[SendResult]) -> None:
        """Write the records, if it is known where the messages stand."""
        if results:
            self._trace.sent(self._outgoing, self.messages, self._begun_ms, _ms_since(self._begun), results)

    def fail(self, error: BaseException) -> None:
        """Write nothing: the message got no id, by which somebody could look for it."""


def host_of(offset_message_id: str) -> str:
    """Return host and port of the broker in an offset message id."""
    octets = bytes.fromhex(offset_message_id)
    if len(offset_message_id) == _IPV4_ID_DIGITS:
        return f"{'.'.join(str(each) for each in octets[:4])}:{int.from_bytes(octets[4:8], 'big')}"
    groups = ":".join(octets[at : at + 2].hex() for at in range(0, 16, 2))
    return f"[{groups}]:{int.from_bytes(octets[16:20], 'big')}"


def _kind_of(outgoing: Outgoing) -> Kind:
    if outgoing.is_half:
        return Kind.HALF
    return Kind.DELAYED if outgoing.delay_level or outgoing.due_ms else Kind.NORMAL


def _place_of(message: SendResult | ReceivedMessage) -> str:
    """Return an offset message id. A store of this host gives none to senders, but writes this into records."""
    return message.offset_message_id or f"{_NO_BROKER}{message.commit_log_offset:016X}"


def _encoded(message: Message) -> Message:
    try:
        return encoded(message)
    except MessageRejected:  # the append refuses it, too, and says why
        return message


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _ms_since(begun: float) -> int:
    return round((time.monotonic() - begun) * 1000)
