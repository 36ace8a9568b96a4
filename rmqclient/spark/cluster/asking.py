"""Asking: what the driver asks name servers and brokers, to know which messages there are.

=================  ===================================================================================================
question           answered by
=================  ===================================================================================================
topics             a name server [GET_ALL_TOPIC_LIST_FROM_NAMESERVER]
queues             the route of a topic: the queues that may be read, of the brokers that are registered now
offsets            the broker [GET_MIN_OFFSET, GET_MAX_OFFSET]
a time             a search by halves over single messages. A broker's own search [SEARCH_OFFSET_BY_TIMESTAMP] returns
                   the nearest message, which may be an earlier one
=================  ===================================================================================================

Names of topics are those of the application: a namespace of the URL is added for the wire. Every function raises the
errors of a cluster, after a minute of trying.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.remoting.bodies.fastjson import read
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request, response_fields
from rmqclient.spark.cluster.patience import patiently
from rmqclient.spark.cluster.pulling import Pull
from rmqclient.store import MessageQueue
from rmqclient.store.errors import UnknownTopic
from rmqclient.store.inspect.view import first_offset
from rmqclient.store.log.record import Record, decode

_AFTER_ALL: Final = 1 << 62
_COMMIT_LOG_OFFSET: Final = slice(28, 36)


class Sample(NamedTuple):
    """What one record says."""

    size: int
    store_timestamp: int
    """ms"""


class Asking:
    """The questions of one reader, who pulls as ``group``. For use by one thread."""

    def __init__(self, client: ClusterClient, group: str) -> None:
        self._client = client
        self._url = client.url
        self._group = self._url.wrap(group)

    def topics(self) -> list[str]:
        """Return the topics of the namespace, sorted; without a namespace, all topics.

        Those that each broker makes for itself are left out: they are named after brokers and clusters.
        """
        asked = request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        body = read(patiently(lambda: self._client.name_servers.call(asked)).body)
        assert isinstance(body, dict)
        cluster = patiently(self._client.routes.cluster)
        own = {*cluster.brokers, *cluster.clusters, *(f"{name}_REPLY_TOPIC" for name in cluster.clusters)}
        names = {self._url.unwrap(name): name for name in body.get("topicList") or () if name not in own}
        return sorted(shown for shown, name in names.items() if self._url.wrap(shown) == name)

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic; none for a topic that does not exist."""
        try:
            patiently(lambda: self._client.routes.of(topic, fresh=True))
            return list(self._client.routes.read_queues(topic))
        except UnknownTopic:
            return []

    def offsets(self, queue: MessageQueue) -> range:
        """Return the offsets of the messages of a queue."""
        oldest = self._offset(RequestCode.GET_MIN_OFFSET, queue)
        return range(oldest, max(oldest, self._offset(RequestCode.GET_MAX_OFFSET, queue)))

    def offset_by_time(self, queue: MessageQueue, known: range, timestamp_ms: int) -> int:
        """Return the first of the ``known`` offsets whose message was stored at that time or later; else their end."""

        def is_behind(offset: int) -> bool:
            found = self.sample(queue, range(offset, known.stop))
            return (found.store_timestamp if found else _AFTER_ALL) >= timestamp_ms

        return first_offset(known, is_behind)

    def sample(self, queue: MessageQueue, offsets: range) -> Sample | None:
        """Return what the first record of a range says, or None if there is none."""
        while offsets:
            for answer in Pull(self._client, self._group, self._named(queue), offsets[:1], at_once=1).answers():
                if answer.records:
                    return _sample_of(answer.records)
                offsets = range(max(offsets.start + 1, answer.following), offsets.stop)
        return None

    def _offset(self, code: RequestCode, queue: MessageQueue) -> int:
        named = self._named(queue)
        asked = request(code, topic=named.topic, queueId=named.queue_id)
        answer = patiently(lambda: self._ask(queue, asked))
        return int(response_fields(code, answer)["offset"])

    def _ask(self, queue: MessageQueue, asked: Frame) -> Frame:
        return self._client.call(self._client.routes.address(queue.broker_name), asked)

    def _named(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue with the name of its topic on the wire."""
        return queue._replace(topic=self._url.wrap(queue.topic))


def _sample_of(records: bytes) -> Sample | None:
    found = decode(memoryview(records), 0, int.from_bytes(records[_COMMIT_LOG_OFFSET], "big"))
    return Sample(found.message.size, found.message.store_timestamp) if isinstance(found, Record) else None
