"""Offsets at the brokers: each broker keeps those of its own queues. [RemoteBrokerOffsetStore]

A broker writes its offsets to its disk 10 s after its start, and then every 5 s. What it was told since then is lost
when it is killed. So its offsets are told again when the connection to it was lost.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.errors import BrokerUnreachable, QueueError
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request, response_fields
from rmqclient.store import MessageQueue
from rmqclient.store.threads.logs import Log

_TIMEOUT_S = 3.0

_log = Log(__name__)


class BrokerOffsets:
    """The offsets of one group at the brokers."""

    def __init__(self, client: ClusterClient, group: str) -> None:
        self._client = client
        self._group = group
        self._failing: set[MessageQueue] = set()

    def read(self, queue: MessageQueue) -> int:
        """Return the committed offset; the oldest message of the queue for a group that has none. Raises as a call."""
        committed = committed_offset(self._client, self._group, queue)
        return oldest_offset(self._client, queue) if committed is None else committed

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Set the committed offset, forwards or back, and wait for the broker's answer. Raises as a call."""
        self._client.call(self._client.routes.address(queue.broker_name), self._request(queue, offset), _TIMEOUT_S)

    def commit_soon(self, queue: MessageQueue, offset: int, done: Callable[[bool], None]) -> None:
        """Set the committed offset without waiting; ``done`` learns on the I/O thread whether it is set."""

        def answered(answer: Frame | QueueError) -> None:
            stored = isinstance(answer, Frame) and answer.code == ResponseCode.SUCCESS
            if stored:
                self._failing.discard(queue)
            elif queue not in self._failing:  # or the log would have it every second
                self._failing.add(queue)
                _log.warning("group %s: an offset of %s is not committed yet: %s", self._group, queue, answer)
            done(stored)

        try:
            address = self._client.routes.address(queue.broker_name)
        except BrokerUnreachable as error:  # its master is away
            answered(error)
        else:
            self._client.submit(address, self._request(queue, offset), answered, _TIMEOUT_S)

    def life(self, queue: MessageQueue) -> object:
        """Return another value when the broker may have been killed, or another one has become the master."""
        address = self._client.routes.master_address(queue.broker_name)
        return address, self._client.losses(address)

    def _request(self, queue: MessageQueue, offset: int) -> Frame:
        return request(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup=self._group,
            topic=self._client.url.wrap(queue.topic),
            queueId=queue.queue_id,
            commitOffset=offset,
        )

    def flush(self) -> None:
        """Do nothing: the broker writes its offsets to its disk every 5 s."""


def committed_offset(client: ClusterClient, group: str, queue: MessageQueue) -> int | None:
    """Return where a group goes on, as the broker says; None when it has no offset.

    A 4.9 broker answers 0 for a group without an offset, too, while the first message of the queue is in memory
    (ConsumerManageProcessor.queryConsumerOffset).
    """
    wanted = request(
        RequestCode.QUERY_CONSUMER_OFFSET,
        consumerGroup=group,
        topic=client.url.wrap(queue.topic),
        queueId=queue.queue_id,
    )
    address = client.routes.address(queue.broker_name)
    answer = client.call(address, wanted, _TIMEOUT_S, also=(ResponseCode.QUERY_NOT_FOUND,))
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return int(response_fields(RequestCode.QUERY_CONSUMER_OFFSET, answer)["offset"])


def oldest_offset(client: ClusterClient, queue: MessageQueue) -> int:
    """Return the queue offset of the oldest message."""
    wanted = request(RequestCode.GET_MIN_OFFSET, topic=client.url.wrap(queue.topic), queueId=queue.queue_id)
    answer = client.call(client.routes.address(queue.broker_name), wanted, _TIMEOUT_S)
    return int(response_fields(RequestCode.GET_MIN_OFFSET, answer)["offset"])
