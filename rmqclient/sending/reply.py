"""Reply: the answer to a request, and its way back to the one who asked.

A request is a message with four properties more, and its reply one with three of them, as RocketMQ's clients write them
(DefaultMQProducerImpl.prepareSendRequest, MessageUtil.createReplyMessage):

===================  =======  =====  ==================================================================================
property             request  reply
===================  =======  =====  ==================================================================================
``CORRELATION_ID``   yes      yes    a UUID: which request the reply belongs to
``REPLY_TO_CLIENT``  yes      yes    client id of the requester
``TTL``              yes      yes    how long it waits, in ms from the request's born time on
``CLUSTER``          yes             names the reply topic, ``<cluster>_REPLY_TOPIC``; a broker adds it to every message
``MSG_TYPE``                  yes    ``reply``
===================  =======  =====  ==================================================================================

A broker pushes a reply to its client. Here each requester follows the reply topic: a reply stands in the queue that its
``REPLY_TO_CLIENT`` hashes to, which is also its sharding key, and has that client id as its tag, so that a requester
passes over the replies of others by their consume queue entries alone.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from rmqclient.backend import Backend
from rmqclient.backend.protocols import Sender
from rmqclient.handler import Handler
from rmqclient.message import Message, ReceivedMessage
from rmqclient.names import check_topic
from rmqclient.store import MessageQueue, java_hash
from rmqclient.store.errors import MessageRejected, UnknownTopic
from rmqclient.store.inspect.broker_conf import REPLY_SUFFIX, cluster_name

REPLY_QUEUES = 16
"""Of a reply topic that is made here: its requesters wake each other only inside of a queue. A broker makes one."""

_PROPERTIES = (b"CORRELATION_ID", b"REPLY_TO_CLIENT", b"TTL", b"CLUSTER")


class Envelope(NamedTuple):
    """What a request says of its reply."""

    correlation_id: str
    client_id: str
    ttl_ms: str
    cluster: str

    @classmethod
    def of(cls, message: ReceivedMessage) -> Self | None:
        """Return what a message says of its reply; None when it asks for none."""
        found = message.some_properties(_PROPERTIES)
        values = [found.get(name.decode(), "") for name in _PROPERTIES]
        envelope = cls(*values)
        return envelope if envelope.correlation_id and envelope.client_id and envelope.cluster else None

    def reply(self, body: object) -> Message:
        """Return the reply; it is sent with the client id as its sharding key."""
        properties = {"MSG_TYPE": "reply", "CORRELATION_ID": self.correlation_id, "REPLY_TO_CLIENT": self.client_id}
        if self.ttl_ms:
            properties["TTL"] = self.ttl_ms
        return Message(self.cluster + REPLY_SUFFIX, body, tags=self.client_id, properties=properties)


def seconds_left(request: ReceivedMessage) -> float:
    """Return how long the requester of a message still waits; 0 or less when it has given up, infinity for no request.

    By the wall clock, from when the requester made the message.
    """
    envelope = Envelope.of(request)
    if envelope is None or not envelope.ttl_ms.isdecimal():
        return float("inf")
    return (request.born_timestamp + int(envelope.ttl_ms)) / 1000 - time.time()


def reply_queues(backend: Backend, topic: str) -> list[MessageQueue]:
    """Return the queues of a reply topic, which is made when it is missing. Raises InvalidName, TableFull."""
    try:
        return backend.queues(topic)
    except UnknownTopic:
        return backend.create_topic(check_topic(topic), REPLY_QUEUES)


def reply_queue(backend: Backend, client_id: str) -> MessageQueue:
    """Return the queue in which the replies to a client stand: by hash, as for any sharding key."""
    queues = reply_queues(backend, cluster_name(backend.topics()) + REPLY_SUFFIX)
    return queues[abs(java_hash(client_id)) % len(queues)]


class Replier:
    """Sends replies for one process; safe for its threads.

    No reply waits for a flush: a power cut that takes it takes its requester, too.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._sender: Sender | None = None
        self._making = threading.Lock()

    def send(self, request: ReceivedMessage, body: object) -> None:
        """Send the reply to a request. Raises MessageRejected for a message that is none, and as a send."""
        envelope = Envelope.of(request)
        if envelope is None:
            raise MessageRejected(
                f"message {request.message_id} of topic {request.topic!r} is no request, so it has no reply: it lacks "
                "one of CORRELATION_ID, REPLY_TO_CLIENT and CLUSTER"
            )
        self._send(envelope, body)

    def answering(self, handler: Handler, call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return ``call``, the way to a handler's function, with what it returns sent as the reply to a request."""
        if inspect.iscoroutinefunction(handler.function):

            async def answer_async(message: ReceivedMessage) -> None:
                self._answer(message, await call(message))

            return answer_async
        return lambda message: self._answer(message, call(message))

    def _answer(self, message: ReceivedMessage, body: object) -> None:
        envelope = Envelope.of(message)
        if envelope is not None:
            self._send(envelope, body)

    def _send(self, envelope: Envelope, body: object) -> None:
        self._backend.check_usable()
        with self._making:
            if self._sender is None:
                self._sender = self._backend.sender(self._make_topic, prepare=False)
        self._sender.append(envelope.reply(body), envelope.client_id)

    def _make_topic(self, topic: str) -> list[MessageQueue]:
        return reply_queues(self._backend, topic)
