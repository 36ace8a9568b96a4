"""Reply topic: replies that are stored like other messages; requesters follow their queue.

A broker pushes a reply to its client. Here each requester follows the reply topic. The sharding key of a reply is its
``REPLY_TO_CLIENT``, so that client id chooses the queue. The client id is also the tag of the reply, so a requester
skips the replies to other requesters by their consume queue entries alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rmqclient.backend.bells import ArrivalBell, Bell
from rmqclient.backend.protocols import Producers, ProducerSettings, Queues, Sender, Topics
from rmqclient.backend.pull_result import PullStatus
from rmqclient.backend.replies import Reply
from rmqclient.filters.tag import TagFilter
from rmqclient.message import ReceivedMessage
from rmqclient.names import check_topic
from rmqclient.store import MessageQueue, default_client_id, java_hash
from rmqclient.store.errors import UnknownTopic
from rmqclient.store.native_threads import threading
from rmqclient.store.settings.config_file import REPLY_SUFFIX, cluster_name

REPLY_QUEUES = 16
"""Queues of a new reply topic; a broker makes one. A reply wakes only the requesters of its queue."""

_LOOKED_AT_ONCE = 1_024
"""Messages of one read, at most."""


class TopicReplies:
    """The replies to one requester, from the queue of its client id's hash."""

    def __init__(self, topics: Topics, queues: Queues, check_usable: Callable[[], None]) -> None:
        self._topics = topics
        self._queues = queues
        self._check_usable = check_usable
        self.client_id = default_client_id()
        self._wanted = TagFilter(frozenset({self.client_id}))
        self._changing = threading.Lock()
        self._bell: ArrivalBell | None = None
        self._queue: MessageQueue | None = None
        self._position = 0
        """Queue offset of the next read."""

    @property
    def bell(self) -> Bell:
        """Rings when the queue gets a message."""
        assert self._bell is not None
        return self._bell

    def open(self) -> Mapping[str, str]:
        """Make the reply topic if it is missing; return the property that names it."""
        self._check_usable()
        queue = self._queue or reply_queue(self._topics, self.client_id)
        with self._changing:
            if self._bell is None:
                self._bell, self._queue = self._queues.bell(), queue
        return {"CLUSTER": queue.topic.removesuffix(REPLY_SUFFIX)}

    def skip(self) -> None:
        """Drop the replies that are in the queue now."""
        assert self._queue is not None
        with self._changing:
            self._position = max(self._position, self._queues.span(self._queue).max_offset)

    def take(self) -> Sequence[ReceivedMessage]:
        """Return new replies; may be empty."""
        assert self._queue is not None
        while True:
            found = self._queues.read(self._queue, self._position, _LOOKED_AT_ONCE, self._wanted)
            with self._changing:
                self._position = max(self._position, found.next_offset)
            if found.messages or found.status is PullStatus.NO_NEW_MESSAGE:
                return found.messages

    def listen(self) -> None:
        """Let the next message of the queue ring the bell."""
        assert self._bell is not None
        assert self._queue is not None
        self._bell.arm(self._queue)

    def close(self) -> None:
        """Do nothing: later replies stay in the topic."""


class TopicReplySender:
    """Appends replies to the reply topic. Safe for threads.

    A reply does not wait for a flush: a power cut that loses the reply also ends the requester.
    """

    waits = False

    def __init__(self, topics: Topics, producers: Producers) -> None:
        self._topics = topics
        self._producers = producers
        self._sender: Sender | None = None
        self._making = threading.Lock()

    def send(self, reply: Reply) -> None:
        """Append a reply to its requester's queue. Raises as a send."""
        with self._making:
            if self._sender is None:
                self._sender = self._producers.sender(ProducerSettings(self._make_topic))
        self._sender.check_usable()
        self._sender.append(reply.message, reply.message.tags)

    def _make_topic(self, topic: str) -> list[MessageQueue]:
        return reply_queues(self._topics, topic)


def reply_queues(topics: Topics, topic: str) -> list[MessageQueue]:
    """Return the queues of a reply topic; makes a missing one. Raises InvalidName, TableFull."""
    try:
        return topics.queues(topic)
    except UnknownTopic:
        return topics.create(check_topic(topic), REPLY_QUEUES)


def reply_queue(topics: Topics, client_id: str) -> MessageQueue:
    """Return the queue for replies to a client, by the hash of its id."""
    queues = reply_queues(topics, cluster_name(topics.names()) + REPLY_SUFFIX)
    return queues[abs(java_hash(client_id)) % len(queues)]
