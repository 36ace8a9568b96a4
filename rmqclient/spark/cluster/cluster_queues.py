"""Cluster queues: a RocketMQ cluster as a place to read.

The driver asks for routes and offsets. Each task has its own connections and pulls from the brokers itself. A process
keeps its connections for the next task or micro-batch that reads the same cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import pyarrow as pa

from rmqclient.arrow.ranges import Ranges
from rmqclient.filters.tag import EVERYTHING, TagFilter
from rmqclient.spark.cluster.asking import Asking
from rmqclient.spark.cluster.clients import kept_client
from rmqclient.spark.cluster.pulling import Pull
from rmqclient.spark.cluster.rows import Rows
from rmqclient.spark.scan.by_queue import by_queue, tasks_for
from rmqclient.spark.scan.lost import on_lost, options_named
from rmqclient.spark.scan.place import Split
from rmqclient.spark.scan.read_options import ReadOptions
from rmqclient.store import Columns, MessageQueue

_SAMPLES = 8


class ClusterQueues:
    """The queues of the cluster that the options name. See :class:`rmqclient.spark.scan.place.Place` for the methods.

    Every method raises the errors of a cluster: :class:`rmqclient.errors.ClusterError`, AnswerError.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._client = kept_client(options.path)
        self._asking = Asking(self._client, options.consumer_group)

    def topics(self) -> list[str]:
        """Return the topics that the name servers know, of the URL's namespace."""
        return self._asking.topics()

    def queues(self, topics: Collection[str]) -> list[MessageQueue]:
        """Return the readable queues of these topics on all brokers that are registered now."""
        return sorted(queue for topic in topics for queue in self._asking.queues(topic))

    def identity(self) -> None:
        """Return None: brokers have no identity that a client can ask for."""

    def ranges(self, queues: Iterable[MessageQueue]) -> Ranges:
        """Ask the brokers for the limits of each queue."""
        return {queue: self._asking.offsets(queue) for queue in queues}

    def offset_by_time(self, queue: MessageQueue, known: range, timestamp_ms: int) -> int:
        """Search by bisection, by the store times in records."""
        return self._asking.offset_by_time(queue, known, timestamp_ms)

    def mean_size(self, queue: MessageQueue, offsets: range) -> float:
        """Read some messages, spread over the range."""
        spread = offsets[:: max(1, len(offsets) // _SAMPLES)]
        samples = [self._asking.sample(queue, range(offset, offsets.stop)) for offset in spread]
        sizes = [sample.size for sample in samples if sample is not None]
        return sum(sizes) / len(sizes) if sizes else 0.0

    def mean_messages(self, queue: MessageQueue, offsets: range) -> float:  # noqa: ARG002 - Place
        """Return 1, because counting would require decompressing each batch."""
        return 1.0

    def plan(self, wanted: Ranges, columns: Sequence[str], options: ReadOptions) -> list[Split]:  # noqa: ARG002 - Place
        """Divide by queue."""
        if not wanted:
            return []
        sizes = {queue: self.mean_size(queue, offsets) for queue, offsets in wanted.items()}
        total = sum(int(sizes[queue] * len(offsets)) for queue, offsets in wanted.items())
        return by_queue(wanted, sizes, max(1, total // tasks_for(total, options)), options)

    def read(self, options: ReadOptions, schema: pa.Schema, split: Split) -> Iterator[pa.RecordBatch]:
        """Pull the records of one range after another."""
        url = self._client.url
        columns = Columns(
            tuple(schema.names),
            rows=options.batch_rows,
            size=options.batch_bytes,
            max_opened_body_bytes=options.max_opened_body_bytes,
            null_unreadable=not options.fail_on_unreadable_body,
        )
        group, tags = url.wrap(options.consumer_group), expression_of(options.tags)
        rows = Rows(columns, schema, options.tags, on_lost(options), is_selected=tags != EVERYTHING)
        with options_named():
            for queue, offsets in split.ranges().items():
                named = queue._replace(topic=url.wrap(queue.topic))
                pull = Pull(self._client, group, named, offsets, tags=tags, at_once=options.pulls_at_once)
                yield from rows.read(queue, named.topic, pull.answers())
            yield from rows.rest()


def expression_of(tags: TagFilter) -> str:
    """Return the subscription with which a broker selects by tag; ``*`` for tags that no subscription can name.

    The broker compares hashes, so tags are compared again.
    """
    if any("|" in tag or tag != tag.strip() for tag in tags.tags):
        return EVERYTHING
    return " || ".join(sorted(tags.tags)) or EVERYTHING
