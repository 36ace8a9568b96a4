"""Asking: requests of the driver to name servers and brokers, to find the existing messages.

Only masters are asked, because a slave may lag behind known offsets. Failed requests are retried for a minute; then
every method raises the errors of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.reading.reader import Reader
from rmqclient.cluster.reading.topics import Topics
from rmqclient.message import ReceivedMessage
from rmqclient.spark.cluster.patience import patiently
from rmqclient.store import MessageQueue
from rmqclient.store.errors import QueueError, UnknownTopic

_T = TypeVar("_T")


class Asking:
    """The requests of one reader, which pulls as ``group``. For use by one thread."""

    def __init__(self, client: ClusterClient, group: str) -> None:
        self._routes = client.routes
        self._topics = Topics(client)
        self._reader = Reader(client, client.url.wrap(group), masters_only=True)

    def topics(self) -> list[str]:
        """Return the topics of the namespace, sorted; without a namespace, all but those named after brokers."""
        return patiently(self._topics.names)

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of the brokers registered now; empty for an unknown topic."""
        try:
            patiently(lambda: self._routes.of(topic, fresh=True))
            return list(self._routes.read_queues(topic))
        except UnknownTopic:
            return []

    def offsets(self, queue: MessageQueue) -> range:
        """Return the offsets of the messages of a queue."""
        return range(*self._patiently(queue, lambda: self._reader.span(queue)))

    def offset_by_time(self, queue: MessageQueue, known: range, timestamp_ms: int) -> int:
        """Return the first of the ``known`` offsets whose message was stored at that time or later; else their end."""
        return self._patiently(queue, lambda: self._reader.first_since(queue, known, timestamp_ms))

    def sample(self, queue: MessageQueue, offsets: range) -> ReceivedMessage | None:
        """Return the first message of a range, or None."""
        return self._patiently(queue, lambda: self._reader.first_in(queue, offsets))

    def _patiently(self, queue: MessageQueue, ask: Callable[[], _T]) -> _T:
        def ask_where_it_is() -> _T:
            with suppress(QueueError):
                self._routes.read_queues(queue.topic)  # asks again for the route of a broker that was lost
            return ask()

        return patiently(ask_where_it_is)
