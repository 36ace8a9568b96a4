"""Rows: converts answers of brokers to Arrow record batches, without a Python object for each row.

The kernel checks each record (its CRC, its queue and its offset) and writes the wanted columns into buffers. Messages
that are damaged or gone are reported to ``on_lost`` by a sentence. If ``on_lost`` returns, reading continues with the
next message.

A topic that its brokers compact has no message at most offsets. All of these are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct

import pyarrow as pa

from rmqclient.arrow.columns import check_types
from rmqclient.arrow.record_batches import loss_in_words, record_batch
from rmqclient.filters.tag import TagFilter
from rmqclient.spark.cluster.answers import Answer
from rmqclient.store import STOPPED, Collector, Columns, MessageQueue
from rmqclient.store.log.record import reason

_SIZE = Struct(">i")
_QUEUE_OFFSET = Struct(">q")
_QUEUE_OFFSET_AT = 20
_MISSING = "the broker has no record of it"
_OTHER = "the broker sent another message"


class Rows:
    """Collects rows of one task. For use by one thread.

    ``columns`` makes the batches: see :class:`rmqclient.store.Columns`. ``tags`` selects by tag. With ``is_selected``
    the broker has selected before, so that the offsets of its records do not follow each other. Raises ValueError for
    a column of another type.
    """

    def __init__(
        self,
        columns: Columns,
        schema: pa.Schema,
        tags: TagFilter,
        on_lost: Callable[[str], None],
        *,
        is_selected: bool,
    ) -> None:
        check_types(schema)
        self._columns = columns
        self._schema = schema
        self._collector = Collector(columns, tags=tags.tags)
        self._is_dense = not is_selected
        self._on_lost = on_lost

    def read(self, queue: MessageQueue, topic: str, answers: Iterator[Answer]) -> Iterator[pa.RecordBatch]:
        """Yield the batches that the answers about a queue fill; ``topic`` is its name in the records.

        Raises BodyUnreadable, NotInstalled, and as ``on_lost``.
        """
        shown = None if queue.topic == topic else queue.topic.encode()
        self._columns.come_from(queue.broker_name.encode(), shown)
        for answer in answers:
            if answer.lost:
                self._lost(queue, answer.start, answer.stop, answer.lost)
            else:
                yield from self._add(queue, topic.encode(), answer)

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the last batch, unless it is empty."""
        if self._columns.rows:
            yield record_batch(self._columns, self._schema)

    def _add(self, queue: MessageQueue, topic: bytes, answer: Answer) -> Iterator[pa.RecordBatch]:
        records, at, following = answer.records, 0, answer.start
        while at < len(records):
            at, found, following = self._collector.add_pulled(
                records, at, topic, queue.queue_id, following, answer.stop, self._is_dense
            )
            if found == STOPPED["FULL"]:
                yield record_batch(self._columns, self._schema)
            elif found == STOPPED["GAP"]:
                met = _QUEUE_OFFSET.unpack_from(records, at + _QUEUE_OFFSET_AT)[0]
                self._lost(queue, following, met, _MISSING)
                following = met
            elif found == STOPPED["SHORT"]:
                break
            elif at < len(records):
                self._lost(queue, following, following + 1, _OTHER if found == STOPPED["OTHER"] else reason(found))
                at += _SIZE.unpack_from(records, at)[0]
                following += 1
        if self._is_dense and following < answer.stop:
            self._lost(queue, following, answer.stop, _MISSING)

    def _lost(self, queue: MessageQueue, start: int, stop: int, why: str) -> None:
        self._on_lost(loss_in_words(queue, range(start, stop), None, why))
