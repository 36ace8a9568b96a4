"""Stream reader: reads a growing store in micro-batches. Its offsets live only in Spark's checkpoint.

- A repeated batch has the same rows: a batch is a range of offsets per queue, and the log does not change.
- A new query that does not begin at offset 0 of every queue begins with an empty batch. Spark writes down where a batch
  ends, but not where the first batch begins: if Spark repeats the first batch, it asks again, and the latest offset has
  changed by then.
- A queue or a topic that appears later is read from its first message on.
- With ``Trigger.AvailableNow`` a query reads the messages that exist when it starts, in batches of the limited size.
- A checkpoint has the identity of the store. If another store stands at its path, reading raises DataLost; with
  ``failOnDataLoss=false`` it is read from its first message on. Checkpoints of older versions do not tell the store.
- If retention removed messages before they were read, or the store ends below an offset that was read before, reading
  raises DataLost. With ``failOnDataLoss=false`` reading continues with the oldest message that exists.
- ``commitGroup`` copies the progress of the query into the offsets of a group, so that its lag can be watched. The
  query never reads these offsets. Spark reports a finished batch when the next one begins, so the group is one batch
  behind, and stays so after the last batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from rmqclient.arrow.columns import stored_schema
from rmqclient.arrow.ranges import Offsets, Ranges, in_words
from rmqclient.consuming.pull_consumer import PullConsumer
from rmqclient.errors import DataLost
from rmqclient.spark.reading.batch_limits import BatchLimits
from rmqclient.spark.reading.batch_reader import read_split
from rmqclient.spark.reading.places import open_place
from rmqclient.spark.scan import offsets
from rmqclient.spark.scan.columns import arrow_schema, check_schema
from rmqclient.spark.scan.place import Place, Split
from rmqclient.spark.scan.queue_json import from_json, store_of, to_json
from rmqclient.spark.scan.read_options import ReadOptions
from rmqclient.store.errors import QueueError
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the selected queues as they grow."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self._initial: dict[str, Any] | None = None
        self._has_begun = False
        self._target: Offsets | None = None
        self._limits = BatchLimits(options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offsets at which a new query begins, the same at each call. Raises ValueError, DataLost."""
        if self._initial is None:
            place = open_place(self.options)
            self._initial = to_json(offsets.starting(place, self._available(place), self.options), place.identity())
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember the present end of each queue: the whole query ends there."""
        self._target = self._present_ends()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that Spark passes on."""
        return self._limits.for_spark()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offsets at which the next micro-batch ends. Raises DataLost."""
        if self._is_to_be_written_down(start):
            return start
        place = open_place(self.options)
        begin = from_json(start) if self._is_of(place, start) else {}
        there = self._available(place)
        latest = self._until_target(begin, self._not_behind(begin, _ends(there)))
        if not isinstance(limit, ReadAllAvailable):
            oldest = {queue: max(begin.get(queue, 0), known.start) for queue, known in there.items()}
            waiting = {queue: min(oldest.get(queue, end), end) for queue, end in latest.items()}
            if self._target is None and self._limits.are_too_few(place, waiting, latest):
                return start
            latest = self._limits.apply(place, waiting, latest)
        if latest != begin:
            self._limits.note_batch()
        return to_json(latest, place.identity())

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the present end of each queue, from which Spark reports the lag of the query."""
        return to_json(self._present_ends())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the share of each task of a micro-batch. Raises DataLost."""
        loss = self.options.fail_on_data_loss
        place = open_place(self.options)
        if not self._is_of(place, end):
            return []
        begin = from_json(start) if store_of(start) in (None, store_of(end)) else {}
        there = offsets.kept(place, begin, from_json(end), fail_on_data_loss=loss)
        columns = stored_schema(arrow_schema(check_schema(self.schema))).names
        return place.plan(self.options.where.apply(there), columns, self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task. Raises DataLost."""
        if not isinstance(partition, Split):  # Spark passes this for a batch without tasks
            return iter(())
        return read_split(self.options, self.schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Copy the offsets that Spark has finished into the group ``commitGroup``."""
        group = self.options.commit_group
        if group is None:
            return
        with _mirrored(group), PullConsumer(self.options.path, group=group) as consumer:
            for queue, offset in from_json(end).items():
                with _mirrored(group):
                    consumer.commit(queue, offset)

    def _present_ends(self) -> Offsets:
        place = open_place(self.options)
        return _ends(self._available(place))

    def _available(self, place: Place) -> Ranges:
        return offsets.available(place, self.options.selection, may_come=True)

    def _is_of(self, place: Place, checkpoint: dict[str, Any]) -> bool:
        """Return whether offsets are of the current store, or have no identity. Raises DataLost."""
        kept, found = store_of(checkpoint), place.identity()
        if kept is None or found is None or kept == found:
            return True
        what = f"{self.options.path} holds another store, {found}, than the one that was read, {kept}"
        if self.options.fail_on_data_loss:
            raise DataLost(
                f"{what}: its offsets mean other messages. Begin with a new checkpoint, bring that store back, or set "
                "the option failOnDataLoss to false to read this one from its first message on"
            )
        _log.warning("%s; reading this one from its first message on because failOnDataLoss=false", what)
        return False

    def _is_to_be_written_down(self, start: dict[str, Any]) -> bool:
        """Return True once if this is the start of a new query and a queue begins at an offset other than 0."""
        is_new = not self._has_begun and start == self._initial and any(from_json(start).values())
        self._has_begun = True
        return is_new

    def _until_target(self, begin: Offsets, latest: Offsets) -> Offsets:
        if self._target is None:
            return latest
        ends = {queue: min(latest[queue], end) for queue, end in self._target.items() if queue in latest}
        return {queue: max(begin.get(queue, 0), end) for queue, end in (begin | ends).items()}

    def _not_behind(self, begin: Offsets, latest: Offsets) -> Offsets:
        """Return ``latest``, at least ``begin`` for each queue: otherwise Spark would read the difference again."""
        behind = {queue: offset for queue, offset in begin.items() if latest.get(queue, 0) < offset}
        here = {queue.broker_name for queue in latest}
        away = {queue.broker_name for queue in behind if queue.broker_name} - here
        if away:  # a broker that is down leaves the routes; its queues are as they were when it is back
            _log.warning("%s: no queues are registered now; they are read when they are back", ", ".join(sorted(away)))
        lost = {queue: offset for queue, offset in behind.items() if queue.broker_name not in away}
        if lost and self.options.fail_on_data_loss:
            queue, offset = next(iter(lost.items()))
            if queue in latest:
                why = f"ends at {latest[queue]} now: the store was replaced, or it lost its end"
            else:
                why = "is not among the queues that are read now: the store was replaced, or the options were changed"
            raise DataLost(
                f"{in_words(queue)} was read up to {offset} and {why}. Begin with a new "
                "checkpoint, or set the option failOnDataLoss to false to go on where the queue has grown past that"
            )
        return latest | behind


def _ends(there: Ranges) -> Offsets:
    return {queue: known.stop for queue, known in there.items()}


@contextmanager
def _mirrored(group: str) -> Iterator[None]:
    """Log a failure to write an offset of the group: the query does not depend on it."""
    try:
        yield
    except QueueError as error:
        _log.warning("offsets of group %s not written: %s", group, error)
