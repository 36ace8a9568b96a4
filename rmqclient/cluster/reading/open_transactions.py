"""Open transactions of a cluster, from the brokers' topics of half messages and of operations (decisions).

Each master has a queue of both. A broker's transaction service reads them as the group ``CID_RMQ_SYS_TRANS``; the scan
begins at that group's offsets. A half message is open if no operation names its offset. After a check the broker stores
it again at the end of the queue, and the last copy counts.

A 4.9 broker does not allow pulls of operations, so they are looked up one by one (requests 321 and 33). A 5.x broker
writes operations every three seconds, and may store a half message again before that, so a recent decision can look
open (transactionOpBatchInterval). So a message that already stands in its target topic is left out.
[TransactionalMessageServiceImpl, TransactionalMessageBridge]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from rmqclient.backend.transactions import OpenTransaction
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.groups.offsets import committed_offset
from rmqclient.cluster.reading.finding import Finding
from rmqclient.cluster.reading.queues import Queues
from rmqclient.cluster.sending.transactions import end_half
from rmqclient.errors import NotOnCluster, UnknownTopic
from rmqclient.filters.tag import TagFilter
from rmqclient.message import ReceivedMessage
from rmqclient.remoting.bodies import fastjson
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.table import request
from rmqclient.store import HALF_TOPIC, OPERATION_TOPIC, MessageQueue
from rmqclient.store.log.query import END_OF_TIME
from rmqclient.store.waiting.half_messages import checks_of, group_of
from rmqclient.store.waiting.real_queue import real_queue
from rmqclient.store.wire import decode_records

_GROUP: Final = "CID_RMQ_SYS_TRANS"
_GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
_READ_AT_ONCE: Final = 32
_EVERY_TAG: Final = TagFilter(frozenset())
_ANY_CODE: Final = range(1, 256)
_NUMBER: Final = re.compile(rb"[0-9]{1,18}")


class OpenTransactions:
    """The undecided transactions of one cluster. Safe for threads."""

    def __init__(self, client: ClusterClient, queues: Queues, finding: Finding) -> None:
        self._client = client
        self._queues = queues
        self._finding = finding

    def all(self) -> Iterator[OpenTransaction]:
        """Yield the open transactions: first those that brokers no longer check, then the others."""
        for message in self._read_all(_GIVEN_UP_TOPIC):
            yield from self._opened(message, given_up=True)
        for queue in self._queues_of(HALF_TOPIC):
            for message in self._undecided(queue):
                yield from (each for each in self._opened(message, given_up=False) if not self._is_committed(each))

    def decide(self, transaction: OpenTransaction, *, commit: bool) -> None:
        """Commit one or roll it back, as its producer would.

        Raises NotOnCluster if the broker gave it up, and the broker's error if it was decided meanwhile.
        """
        half = transaction.message
        if transaction.given_up:
            raise NotOnCluster(
                f"a broker has given up {half.message_id}, and does not say where its half message stands: send it "
                "again by hand, or leave it"
            )
        wrap = self._client.url.wrap
        group, topic = wrap(transaction.group), wrap(transaction.queue.topic)
        end_half(self._client, half, group, topic, commit=commit, is_checked=True)

    def _opened(self, message: ReceivedMessage, *, given_up: bool) -> Iterator[OpenTransaction]:
        unwrap = self._client.url.unwrap
        queue = real_queue(message)
        if queue is not None:
            queue = queue._replace(topic=unwrap(queue.topic), broker_name=message.queue.broker_name)
            yield OpenTransaction(message, queue, unwrap(group_of(message)), checks_of(message), given_up=given_up)

    def _is_committed(self, transaction: OpenTransaction) -> bool:
        message_id = transaction.message.message_id
        return bool(self._finding.by_key(transaction.queue.topic, message_id, 0, END_OF_TIME, 1))

    def _undecided(self, halves: MessageQueue) -> list[ReceivedMessage]:
        operations = halves._replace(topic=OPERATION_TOPIC)
        present = self._read(halves)  # before the operations, so that a decision made meanwhile is seen
        decided = {
            int(number) for operation in self._operations(operations) for number in _NUMBER.findall(operation.body)
        }
        open_now = [message for message in present if message.queue_offset not in decided]
        return list({message.message_id: message for message in open_now}.values())

    def _operations(self, queue: MessageQueue) -> list[ReceivedMessage]:
        if queue in self._queues_of(OPERATION_TOPIC):
            return self._read(queue)
        address = self._client.brokers.address(queue.broker_name)
        begin, found = committed_offset(self._client, _GROUP, queue) or 0, []
        while places := self._places(address, queue, begin):
            found += [self._at(address, place) for place in places]
            begin += len(places)
        return found

    def _places(self, address: str, queue: MessageQueue, index: int) -> list[int]:
        """Return the log offsets of a queue's messages from a queue offset on; empty beyond its end."""
        asked = request(
            RequestCode.QUERY_CONSUME_QUEUE,
            topic=queue.topic,
            queueId=queue.queue_id,
            index=index,
            count=_READ_AT_ONCE,
            consumerGroup=_GROUP,
        )
        body: Any = fastjson.read(self._client.call(address, asked, also=_ANY_CODE).body or b"{}")
        return [int(entry["physicOffset"]) for entry in body.get("queueData") or ()]

    def _at(self, address: str, commit_log_offset: int) -> ReceivedMessage:
        asked = request(RequestCode.VIEW_MESSAGE_BY_ID, offset=commit_log_offset)
        return decode_records(self._client.call(address, asked).body)[0]

    def _read_all(self, topic: str) -> Iterator[ReceivedMessage]:
        for queue in self._queues_of(topic):
            yield from self._from(queue, self._queues.span(queue).min_offset)

    def _read(self, queue: MessageQueue) -> list[ReceivedMessage]:
        begin = committed_offset(self._client, _GROUP, queue)
        return list(self._from(queue, max(begin or 0, self._queues.span(queue).min_offset)))

    def _from(self, queue: MessageQueue, offset: int) -> Iterator[ReceivedMessage]:
        while (result := self._queues.read(queue, offset, _READ_AT_ONCE, _EVERY_TAG)).next_offset > offset:
            yield from result.messages
            offset = result.next_offset

    def _queues_of(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that brokers make on demand; empty for a missing one."""
        try:
            return self._client.routes.read_queues(topic)
        except UnknownTopic:
            return []
