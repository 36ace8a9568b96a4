"""Reply: the answer to a request, and its way back to the requester.

A request is a message with four extra properties, and its reply has three of them and one of its own. RocketMQ's
clients write the same (DefaultMQProducerImpl.prepareSendRequest, MessageUtil.createReplyMessage):

===================  =======  =====  ==================================================================================
property             request  reply
===================  =======  =====  ==================================================================================
``CORRELATION_ID``   yes      yes    a UUID, the same in a request and its reply
``REPLY_TO_CLIENT``  yes      yes    client id of the requester
``TTL``              yes      yes    how long the requester waits, in ms from the request's born time
``CLUSTER``          yes             names the reply topic, ``<cluster>_REPLY_TOPIC``; a broker adds it to every message
``MSG_TYPE``                  yes    ``reply``
===================  =======  =====  ==================================================================================

Backends transport replies: :mod:`rmqclient.backend.replies`.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from rmqclient.backend import Backend
from rmqclient.backend.replies import Reply
from rmqclient.errors import ReplyRejected
from rmqclient.message import Message, ReceivedMessage
from rmqclient.store import clock
from rmqclient.store.errors import MessageRejected
from rmqclient.store.settings.config_file import REPLY_SUFFIX

_PROPERTIES = (b"CORRELATION_ID", b"REPLY_TO_CLIENT", b"TTL", b"CLUSTER")


class Envelope(NamedTuple):
    """The properties of a request that its reply needs."""

    correlation_id: str
    client_id: str
    ttl_ms: str
    cluster: str

    @classmethod
    def of(cls, message: ReceivedMessage) -> Self | None:
        """Return the envelope of a request; None for a message that is not a request."""
        found = message.some_properties(_PROPERTIES)
        values = [found.get(name.decode(), "") for name in _PROPERTIES]
        envelope = cls(*values)
        return envelope if envelope.correlation_id and envelope.client_id and envelope.cluster else None

    def reply(self, body: object) -> Message:
        """Return the reply, whose tag is the client id of the requester."""
        properties = {"MSG_TYPE": "reply", "CORRELATION_ID": self.correlation_id, "REPLY_TO_CLIENT": self.client_id}
        if self.ttl_ms:
            properties["TTL"] = self.ttl_ms
        return Message(self.cluster + REPLY_SUFFIX, body, tags=self.client_id, properties=properties)


def seconds_left(request: ReceivedMessage) -> float:
    """Return for how many seconds the requester of a message still waits, by the wall clock since its born time.

    0 or less means that the requester has given up. Infinity means that the message is not a request.
    """
    envelope = Envelope.of(request)
    if envelope is None or not envelope.ttl_ms.isdecimal():
        return float("inf")
    return (request.born_timestamp + int(envelope.ttl_ms)) / 1000 - clock.wall_ns() / 1e9


class Replier:
    """Sends replies for one process. Safe for threads."""

    def __init__(self, backend: Backend) -> None:
        self._sender = backend.producers.reply_sender()

    def send(self, request: ReceivedMessage, body: object) -> None:
        """Send the reply to a request. Raises MessageRejected if ``request`` is not a request, and as a send."""
        envelope = Envelope.of(request)
        if envelope is None:
            raise MessageRejected(
                f"message {request.message_id} of topic {request.topic!r} is not a request, so it has no reply: it "
                "lacks one of CORRELATION_ID, REPLY_TO_CLIENT and CLUSTER"
            )
        self._send(envelope, body, request)

    @property
    def waits(self) -> bool:
        """Whether a send waits for a broker, so that an event loop must not call it."""
        return self._sender.waits

    def answer(self, message: ReceivedMessage, body: object) -> None:
        """Send what a handler returned for a message, if that is a request. Raises ReplyRejected, and as a send."""
        envelope = Envelope.of(message)
        if envelope is None:
            return
        try:
            self._send(envelope, body, message)
        except MessageRejected as error:
            raise ReplyRejected(f"what the handler returned cannot be the reply: {error}") from error

    def _send(self, envelope: Envelope, body: object, request: ReceivedMessage) -> None:
        self._sender.send(Reply(envelope.reply(body), request))
