"""Replies: a replier sends request 325 to a broker, which pushes the reply to the requester by request 326.

The broker finds the requester by ``REPLY_TO_CLIENT`` among its connected producers. So a requester connects to every
broker of the cluster, and a reply goes first to the broker of the request. The broker keeps the reply in
``<cluster>_REPLY_TOPIC`` in any case (ReplyMessageProcessor).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rmqclient.backend.bells import ThreadBell
from rmqclient.backend.replies import Reply
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.sending.producer_groups import ProducerGroups
from rmqclient.cluster.sending.pushed_reply import message_of_push
from rmqclient.cluster.sending.send_requests import STORED, SendRequests, to_queue
from rmqclient.codecs import encoded
from rmqclient.errors import BrokerUnreachable, QueueError, UnknownTopic
from rmqclient.message import Message, MessageQueue, ReceivedMessage
from rmqclient.names import PRODUCER_GROUP
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import response
from rmqclient.store.settings.config_file import REPLY_SUFFIX
from rmqclient.store.threads.logs import Log
from rmqclient.store.wire import encode_properties

_MOST_KEPT: Final = 10_000
"""Replies that wait in one requester, at most. All requesters of a client get all replies, even idle ones."""

_log = Log(__name__)


class Pushes:
    """Passes the replies pushed to one client to all of its requesters; each knows its own."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._changing = threading.Lock()
        self._requesters: list[ClusterReplies] = []

    def add(self, requester: ClusterReplies) -> None:
        """Pass replies to a requester from now on."""
        self._client.requests.on(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._take)
        with self._changing:
            self._requesters.append(requester)

    def remove(self, requester: ClusterReplies) -> None:
        """Stop passing replies to a requester."""
        with self._changing:
            self._requesters.remove(requester)

    def _take(self, pushed: Frame, _address: str) -> Frame:
        reply = message_of_push(pushed)
        with self._changing:
            requesters = list(self._requesters)
        for requester in requesters:
            requester.came(reply)
        return response(pushed)


class ClusterReplies:
    """The replies to one requester."""

    def __init__(self, client: ClusterClient, groups: ProducerGroups, pushes: Pushes) -> None:
        self.client_id = client.client_id
        self.bell = ThreadBell()
        self._client = client
        self._groups = groups
        self._pushes = pushes
        self._come: deque[ReceivedMessage] = deque(maxlen=_MOST_KEPT)
        self._changing = threading.Lock()
        self._leave: Callable[[], None] | None = None

    def open(self) -> Mapping[str, str]:
        """Connect to every broker of the cluster. Raises as a send."""
        with self._changing:
            if self._leave is None:
                self._pushes.add(self)
                for cluster in self._client.brokers.cluster().clusters:
                    self._know_brokers(cluster)
                self._leave = self._groups.join(self._client.url.wrap(PRODUCER_GROUP))
        return {}

    def came(self, reply: ReceivedMessage) -> None:
        """Take a pushed reply."""
        self._come.append(reply)
        self.bell.ring()

    def skip(self) -> None:
        """Drop the replies that have come until now."""
        self._come.clear()

    def take(self) -> Sequence[ReceivedMessage]:
        """Return new replies; may be empty."""
        come: list[ReceivedMessage] = []
        while self._come:
            come.append(self._come.popleft())
        return come

    def listen(self) -> None:
        """Do nothing: every push rings the bell."""

    def close(self) -> None:
        """Stop taking replies. Closing twice does nothing."""
        with self._changing:
            leave, self._leave = self._leave, None
        if leave is not None:
            self._pushes.remove(self)
            leave()

    def _know_brokers(self, cluster: str) -> None:
        """Ask for a route with every broker of a cluster, because heartbeats go to the brokers of known routes."""
        try:
            self._client.routes.of(cluster + REPLY_SUFFIX)
        except UnknownTopic:
            _log.warning("cluster %s has no topic %s: replies come from the brokers of the requests only",
                         cluster, cluster + REPLY_SUFFIX)  # fmt: skip


class ClusterReplySender:
    """Sends replies. Safe for threads."""

    waits = True

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._requests = SendRequests(RequestCode.SEND_REPLY_MESSAGE_V2, client.url.wrap(PRODUCER_GROUP))

    def send(self, reply: Reply) -> None:
        """Send a reply to the broker of its request, or to another one if that cannot be reached.

        If the requester is gone, the broker keeps the reply; that is logged and is not an error.
        """
        sent, request = reply
        message = encoded(Message(sent.topic, sent.body, properties=sent.properties))
        body = message.body
        assert isinstance(body, bytes)
        frame = self._requests.make(message.topic, body, encode_properties(message))
        failure: QueueError | None = None
        for queue in self._queues(message.topic, request.queue.broker_name):
            try:
                self._send(frame, queue, request)
            except (BrokerUnreachable, UnknownTopic) as error:
                failure = error
            else:
                return
        raise failure or UnknownTopic(f"no broker has topic {message.topic!r}, so no reply can be sent")

    def _queues(self, topic: str, first: str) -> list[MessageQueue]:
        """Return the queue of the reply topic on each master, beginning with broker ``first``."""
        masters = self._client.brokers.masters()
        names = sorted(masters, key=lambda name: (name != first, name))
        return [MessageQueue(topic, 0, name) for name in names]

    def _send(self, frame: Frame, queue: MessageQueue, request: ReceivedMessage) -> None:
        address = self._client.brokers.address(queue.broker_name)
        answer = self._client.call(address, to_queue(frame, queue), also=STORED | {ResponseCode.SYSTEM_ERROR})
        if answer.code == ResponseCode.SYSTEM_ERROR:
            _log.warning("the reply to message %s did not reach its requester: broker %s says: %s",
                         request.message_id, queue.broker_name, answer.remark)  # fmt: skip
