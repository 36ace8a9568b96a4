"""Sending: sends the rows of one task to the brokers of a cluster, in batches.

Rows of one queue travel together, and a queue has one request under way, so that its rows are stored in their order.
Several queues have requests under way at the same time. A request that fails, or whose answer is lost, is sent again
for a minute, so its rows may be stored twice. The copies have the same message id, made of application, batch, part and
row.

===============================  =====================================================================================
row                              queue
===============================  =====================================================================================
with ``partition``               that queue of the broker ``broker_name``
with ``key``                     by the hash of the key, as a producer with this sharding key
otherwise                        any: a batch of such rows goes to the next queue in turn
===============================  =====================================================================================
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

import pyarrow as pa

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.sending.queue_choice import QueueChoice
from rmqclient.cluster.sending.send_requests import STORED, SendRequests, to_queue
from rmqclient.names import check_topic
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.errors import error_of
from rmqclient.remoting.frame import Frame
from rmqclient.spark.cluster.patience import PATIENCE_S, pause_s
from rmqclient.spark.writing.write_columns import cast
from rmqclient.store import Message, MessageQueue
from rmqclient.store.errors import MessageRejected, QueueError
from rmqclient.store.wire import encode_batch

_BATCH_BYTES: Final = 256 << 10
_BATCH_ROWS: Final = 1_000
_UNDER_WAY: Final = 16


class _Group(NamedTuple):
    """Rows that travel together: a queue, or any queue of the topic, and when they were sent."""

    topic: str
    queue: MessageQueue | None
    born_ms: int


@dataclass(eq=False)
class _Batch:
    """Encoded rows of one group."""

    group: _Group
    rows: list[bytes] = field(default_factory=list)
    size: int = 0
    queue: MessageQueue = field(default_factory=lambda: MessageQueue("", 0))
    """Where the present request went."""
    failures: int = 0
    fails_at: float = 0.0


class RowSender:
    """Sends the rows of one part. ``prefix`` is the first half of their message ids, as a number of 64 bits.

    For use by one thread.
    """

    def __init__(self, client: ClusterClient, group: str, prefix: int, topic: str | None) -> None:
        self._client = client
        self._url = client.url
        self._requests = SendRequests(RequestCode.SEND_BATCH_MESSAGE, client.url.wrap(group))
        self._prefix = prefix
        self._topic = None if topic is None else check_topic(topic)
        self._choice = QueueChoice(client)
        self._open: dict[_Group, _Batch] = {}
        self._under_way: dict[MessageQueue, _Batch] = {}
        self._arrived: SimpleQueue[tuple[_Batch, Frame | QueueError]] = SimpleQueue()
        self.rows = 0

    def send(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Send all rows, and return when brokers have stored them.

        Raises MessageRejected, BodyTooLarge, PropertiesTooLarge or InvalidName, which name the row, and the errors of
        a cluster. The rows that were sent before then stay.
        """
        for batch in batches:
            for row in _rows(batch, self._topic):
                self._add(row)
        for open_batch in list(self._open.values()):
            self._flush(open_batch)
        while self._under_way:
            self._receive()

    def _add(self, row: dict[str, Any]) -> None:
        group, encoded = self._encoded(row)
        batch = self._open.get(group)
        if batch is None:
            self._flush_others(group)
            batch = self._open[group] = _Batch(group)
        if batch.rows and batch.size + len(encoded) > _BATCH_BYTES:
            self._flush(batch)
            batch = self._open[group] = _Batch(group)
        batch.rows.append(encoded)
        batch.size += len(encoded)
        self.rows += 1
        if len(batch.rows) >= _BATCH_ROWS:
            self._flush(batch)

    def _encoded(self, row: dict[str, Any]) -> tuple[_Group, bytes]:
        topic, key, value = self._topic, row.get("key") or b"", row["value"]
        if value is None or (topic is None and row["topic"] is None):
            missing = "value" if value is None else "topic"
            raise MessageRejected(f"row {self.rows} of the part: column {missing} is null")
        try:
            topic = topic or check_topic(row["topic"].decode())
            sharding_key = key.decode() or None
            message = Message(
                topic,
                value,
                tags=(row.get("tags") or b"").decode() or None,
                keys=sharding_key.split() if sharding_key else (),
                properties=dict(row.get("properties") or ()),
            )
            encoded = encode_batch([message], [self._extra(sharding_key)])
        except (UnicodeDecodeError, MessageRejected) as error:
            raise MessageRejected(f"row {self.rows} of the part: {error}") from error
        return _Group(topic, self._queue_of(topic, sharding_key, row), row.get("born_timestamp") or 0), encoded

    def _extra(self, sharding_key: str | None) -> dict[str, str]:
        extra = {"UNIQ_KEY": f"{self._prefix:016X}{self.rows:016X}", "WAIT": "true"}
        if sharding_key:
            extra["__SHARDINGKEY"] = sharding_key
        if self._url.namespace:
            extra["INSTANCE_ID"] = self._url.namespace
        return extra

    def _queue_of(self, topic: str, sharding_key: str | None, row: dict[str, Any]) -> MessageQueue | None:
        number, broker_name = row.get("partition"), row.get("broker_name")
        if number is None and broker_name is None:
            return self._choice.next(topic, sharding_key) if sharding_key else None
        if number is None or broker_name is None:
            raise MessageRejected(
                f"row {self.rows} of the part: partition is {number}, broker_name is {broker_name}: a queue needs both"
            )
        return MessageQueue(topic, number, broker_name)

    def _flush_others(self, group: _Group) -> None:
        """Send what goes to the same queue with another time, so that rows keep their order."""
        for other in [each for each in self._open if each[:2] == group[:2]]:
            self._flush(self._open[other])

    def _flush(self, batch: _Batch) -> None:
        del self._open[batch.group]
        while len(self._under_way) >= _UNDER_WAY:
            self._receive()
        self._submit(batch)

    def _submit(self, batch: _Batch) -> None:
        failed_on = batch.queue.broker_name
        batch.queue = batch.group.queue or self._choice.next(batch.group.topic, failed_on=failed_on)
        while batch.queue in self._under_way:
            self._receive()
        self._under_way[batch.queue] = batch
        topic = self._url.wrap(batch.group.topic)
        frame = self._requests.make(topic, b"".join(batch.rows), born_ms=batch.group.born_ms)
        try:
            address = self._client.brokers.address(batch.queue.broker_name)
        except QueueError as error:  # the broker has left the routes
            self._arrived.put((batch, error))
            return
        self._client.submit(address, to_queue(frame, batch.queue), lambda came: self._arrived.put((batch, came)))

    def _receive(self) -> None:
        """Wait for an answer, and send again what was refused for now."""
        batch, came = self._arrived.get()
        del self._under_way[batch.queue]
        if isinstance(came, Frame):
            if came.code in STORED:
                return
            came = error_of(came, batch.queue.broker_name)
        self._send_again(batch, came)

    def _send_again(self, batch: _Batch, error: QueueError) -> None:
        now = time.monotonic()
        if not batch.failures:
            batch.fails_at = now + PATIENCE_S
        if (not error.retryable and not error.stored) or now >= batch.fails_at:
            raise error
        self._choice.forget(batch.group.topic)
        time.sleep(pause_s(batch.failures))
        batch.failures += 1
        self._submit(batch)


def _rows(batch: pa.RecordBatch, topic: str | None) -> Iterator[dict[str, Any]]:
    columns = cast(batch, topic)
    if "born_timestamp" in columns:
        columns["born_timestamp"] = (
            columns["born_timestamp"].cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
        )
    names = list(columns)
    for values in zip(*(column.to_pylist() for column in columns.values()), strict=True):
        yield dict(zip(names, values, strict=True))
