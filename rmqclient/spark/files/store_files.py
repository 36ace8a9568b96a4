"""Store files: a store's directory, or its archive, as a place to read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from rmqclient.spark.files.batches import BatchReader
from rmqclient.spark.files.compacted import Compacted
from rmqclient.spark.files.location import Location, opened
from rmqclient.spark.files.planning import mean_messages, mean_size, plan
from rmqclient.spark.scan.place import Split
from rmqclient.spark.scan.ranges import Piece, Ranges
from rmqclient.spark.scan.read_options import ReadOptions
from rmqclient.spark.scan.record_batches import on_lost, options_named
from rmqclient.store import MessageQueue, limit_resident
from rmqclient.store.inspect.view import View, offset_by_time
from rmqclient.store.settings.config_file import TopicConfig, read_topics
from rmqclient.store.settings.topic_table import queues_of

MOST_RESIDENT: Final = 512 << 20
"""Bytes of files that a worker process of Spark keeps in its page table. Reading the same store again costs an eighth
of the time less when its pages are still there; every other process keeps a quarter of this."""


class StoreFiles:
    """The files that a view reads. See :class:`rmqclient.spark.scan.place.Place` for the methods.

    ``root`` is the directory of the store; None for an archive alone, which knows no settings and no compacted files.
    """

    def __init__(self, view: View, root: Path | None = None, identity: str | None = None) -> None:
        self._view = view
        self._root = root
        self._identity = identity
        self._compacted = Compacted(root)

    def topics(self) -> list[str]:
        """Return the topics that have, or had, messages and were not removed, as a consumer sees them."""
        known = self._configs()
        return sorted({queue.topic for queue in self._view.queues() if queue.topic in known or not known})

    def queues(self, topics: Collection[str]) -> list[MessageQueue]:
        """Return the queues of these topics, also those without a message."""
        known = self._configs()
        made = {
            MessageQueue(topic, queue_id)
            for topic in topics
            if topic in known
            for queue_id in range(queues_of(known[topic]))
        }
        return sorted(made | {queue for queue in self._view.queues() if queue.topic in topics})

    def _configs(self) -> Mapping[str, TopicConfig]:
        return {} if self._root is None else read_topics(self._root)

    def identity(self) -> str | None:
        """Return the identity of the store; None for an archive alone, and for a store that a broker made."""
        return self._identity

    def ranges(self, queues: Iterable[MessageQueue]) -> Ranges:
        """Return the offsets that have messages now, by one look at the store. A compacted queue begins at 0."""
        found = self._view.ranges(queues)
        return found | {queue: range(found[queue].stop) for queue in self._compacted.queues() & found.keys()}

    def offset_by_time(self, queue: MessageQueue, known: range, timestamp_ms: int) -> int:
        """Search by bisection, by the store times in records."""
        if queue in self._compacted.queues():
            known = range(max(known.start, self._view.offsets(queue).start), known.stop)
        return offset_by_time(self._view, queue, known, timestamp_ms)

    def mean_size(self, queue: MessageQueue, offsets: range) -> float:
        """Return the mean size in consume queue entries."""
        return mean_size(self._view, queue, offsets)

    def mean_messages(self, queue: MessageQueue, offsets: range) -> float:
        """Return the mean of records spread over the range."""
        return mean_messages(self._view, queue, offsets)

    def plan(self, wanted: Ranges, columns: Sequence[str], options: ReadOptions) -> list[Split]:
        """Divide by queue or by log. The part of a compacted queue below the log is a share of its own."""
        in_log = dict(wanted)
        compacted = []
        for queue in self._compacted.queues() & wanted.keys():
            below, in_log[queue] = self._divided(queue, wanted[queue])
            compacted += [Split((Piece(queue, below.start, below.stop),))] if below else []
        in_log = {queue: offsets for queue, offsets in in_log.items() if offsets}
        return plan(self._view, in_log, columns, options) + compacted

    def _divided(self, queue: MessageQueue, wanted: range) -> tuple[range, range]:
        """Return the part of a range that is below the log, and the part that is in the log."""
        begin = min(max(wanted.start, self._view.offsets(queue).start), wanted.stop)
        return range(wanted.start, begin), range(begin, wanted.stop)

    def read(self, options: ReadOptions, schema: StructType, split: Split) -> Iterator[pa.RecordBatch]:
        """Read by the entries of queues, or along the log."""
        self._view.release()
        asked = to_arrow_schema(schema, timezone="UTC")
        records = BatchReader(
            self._view,
            asked,
            rows=options.batch_rows,
            size=options.batch_bytes,
            tags=options.tags,
            max_opened_body_bytes=options.max_opened_body_bytes,
            null_unreadable=not options.fail_on_unreadable_body,
            on_lost=on_lost(options),
        )
        with options_named():
            if split.log is not None:
                yield from records.read_log(*split.log, split.ranges())
                return
            compacted = self._compacted.queues()
            for queue, wanted in split.ranges().items():
                below, in_log = self._divided(queue, wanted) if queue in compacted else (range(0), wanted)
                if below:
                    yield from self._compacted.read(queue, below, records.collector(), asked, on_lost(options))
                yield from records.read_queue(queue, in_log.start, in_log.stop)


def store_files(options: ReadOptions) -> StoreFiles:
    """Return the files that the options name, for the driver. Raises as :func:`rmqclient.archive.view.open_view`."""
    location = Location.of(options)
    return StoreFiles(location.open(), location.directory(), location.identity())


def kept_store_files(options: ReadOptions) -> StoreFiles:
    """Return the files that the options name, for a task: a worker process keeps them open."""
    limit_resident(MOST_RESIDENT)
    location = Location.of(options)
    return StoreFiles(opened(location), location.directory())
