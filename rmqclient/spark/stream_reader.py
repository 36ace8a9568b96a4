"""Stream reader: a store that goes on growing, in micro-batches. Its offsets live in Spark's checkpoint alone.

- What is read twice is what Spark asks for twice: a batch is a range of offsets per queue, and the log does not change.
- A queue or a topic that appears later is read from its first message on.
- With ``Trigger.AvailableNow`` what is there at the beginning is read, in batches of the limited size, and no more.
- Messages that retention removed before they were read, and a store that ends below what was read before, raise
  DataLost; with ``failOnDataLoss=false`` reading goes on with the oldest one there is.
- ``commitGroup`` mirrors what Spark has finished into the offsets of a group, for those who look at its lag. Nothing is
  read from there. Spark tells it one batch late, and not for the last one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from rmqclient.pull_consumer import PullConsumer
from rmqclient.spark import offsets
from rmqclient.spark.batch_reader import read_split
from rmqclient.spark.location import Location
from rmqclient.spark.offsets import Offsets, from_json, to_json
from rmqclient.spark.planning import Split, plan
from rmqclient.spark.read_options import ReadOptions
from store import MessageQueue
from store.errors import DataLost, QueueError
from store.view import View, entry_at

_log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the selected queues as they grow."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self._target: Offsets | None = None
        self._last_batch_at = time.monotonic()

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802 - Spark's name
        """Return where a new query begins."""
        view = self._look()
        there = offsets.available(view, self.options.selection, may_come=True)
        return to_json(offsets.starting(view, there, self.options))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember the end of what is there now: that far goes the whole query."""
        self._target = self._latest(self._look())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of the options; both of them, and the least size, are applied in :meth:`latestOffset`."""
        if self.options.max_offsets_per_trigger:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.max_bytes_per_trigger:
            return ReadMaxBytes(self.options.max_bytes_per_trigger)
        return ReadMaxRows((1 << 63) - 1) if self.options.min_offsets_per_trigger else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where the next micro-batch ends. Raises DataLost."""
        view = self._look()
        begin = from_json(start)
        latest = self._not_behind(begin, self._target if self._target is not None else self._latest(view))
        if not isinstance(limit, ReadAllAvailable):
            if self._is_to_wait(begin, latest):
                return start
            latest = self._limited(view, begin, latest)
        if latest != begin:
            self._last_batch_at = time.monotonic()
        return to_json(latest)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of what is there now, for the progress of the query: its lag."""
        return to_json(self._latest(self._look()))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return what each task of a micro-batch reads. Raises DataLost."""
        view = self._look()
        loss = self.options.fail_on_data_loss
        there = offsets.kept(view, from_json(start), from_json(end), fail_on_data_loss=loss)
        return plan(view, there, self.schema.names, self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task. Raises DataLost."""
        if not isinstance(partition, Split):  # Spark's stand-in for a batch without tasks
            return iter(())
        return read_split(self.options, self.schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Mirror what Spark has finished into the offsets of the group ``commitGroup``."""
        if self.options.commit_group is None:
            return
        try:
            with PullConsumer(self.options.path, group=self.options.commit_group) as consumer:
                for queue, offset in from_json(end).items():
                    consumer.commit(queue, offset)
        except QueueError as error:  # nothing of the query depends on it
            _log.warning("offsets of group %s not written: %s", self.options.commit_group, error)

    def _look(self) -> View:
        return Location.of(self.options).open()

    def _latest(self, view: View) -> Offsets:
        there = offsets.available(view, self.options.selection, may_come=True)
        return {queue: known.stop for queue, known in there.items()}

    def _not_behind(self, begin: Offsets, latest: Offsets) -> Offsets:
        """Return ``latest``, nowhere below ``begin``: Spark would read the difference again."""
        behind = {queue: offset for queue, offset in begin.items() if latest.get(queue, 0) < offset}
        if behind and self.options.fail_on_data_loss:
            queue, offset = next(iter(behind.items()))
            raise DataLost(
                f"queue {queue.queue_id} of {queue.topic} was read up to {offset} and ends at {latest.get(queue, 0)} "
                "now: the store was replaced, or it lost its end. Begin with a new checkpoint, or set the option "
                "failOnDataLoss to false to wait until the queue has grown past that offset"
            )
        return latest | behind

    def _is_to_wait(self, begin: Offsets, latest: Offsets) -> bool:
        """Tell whether there are too few messages for a micro-batch, and there is time to wait for more."""
        least = self.options.min_offsets_per_trigger
        waited_ms = (time.monotonic() - self._last_batch_at) * 1000
        if least is None or self._target is not None or waited_ms >= self.options.max_trigger_delay_ms:
            return False
        return offsets.count(offsets.between(begin, latest).values()) < least

    def _limited(self, view: View, begin: Offsets, latest: Offsets) -> Offsets:
        most = self.options.max_offsets_per_trigger
        if most is not None:
            latest = offsets.limited(begin, latest, most)
        if self.options.max_bytes_per_trigger is not None:
            latest = _limited_by_size(view, begin, latest, self.options.max_bytes_per_trigger)
        return latest


def _limited_by_size(view: View, begin: Offsets, latest: Offsets, most_bytes: int) -> Offsets:
    """Return where a batch of at most ``most_bytes`` of records ends, by halving what it takes until that fits.

    The bytes between the first and the last record of each queue count, with what lies between them only once: an
    estimate by the sizes of entries that are spread over the range. One message is always taken.
    """
    while True:
        ranges = offsets.between(begin, latest)
        messages = offsets.count(ranges.values())
        size = sum(_size(view, queue, wanted) for queue, wanted in ranges.items())
        if messages <= 1 or size <= most_bytes:
            return latest
        latest = offsets.limited(begin, latest, max(1, min(messages - 1, int(messages * most_bytes / size))))


def _size(view: View, queue: MessageQueue, wanted: range) -> float:
    sampled = wanted[:: max(1, len(wanted) // 16)]
    return sum(entry_at(view, queue, offset).size for offset in sampled) / len(sampled) * len(wanted)
