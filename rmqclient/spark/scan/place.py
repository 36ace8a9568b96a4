"""Place: the interface of the driver and its tasks to the messages of a read.

:class:`rmqclient.spark.files.store_files.StorePlace` is a store's directory or archive, and
:class:`rmqclient.spark.cluster.cluster_queues.ClusterQueues` is a RocketMQ cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rmqclient.arrow.ranges import Piece, Ranges
from rmqclient.store import MessageQueue

if TYPE_CHECKING:
    from rmqclient.spark.scan.read_options import ReadOptions


@dataclass(frozen=True)
class Split(InputPartition):
    """The share of one task: ``pieces``, found by walking over ``log`` if that is given, a range of the commit log."""

    pieces: tuple[Piece, ...]
    log: tuple[int, int] | None = None

    def ranges(self) -> Ranges:
        """Return the range of each queue; a task has at most one piece of each."""
        return {queue: range(start, stop) for queue, start, stop in self.pieces}


class Place(Protocol):
    """A place with messages, for one thread. The driver asks all but :meth:`read`, which is for the tasks."""

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""

    def queues(self, topics: Collection[str]) -> list[MessageQueue]:
        """Return the queues of these topics, sorted. A topic that does not exist has no queue."""

    def identity(self) -> str | None:
        """Return which store this is, also after it was moved or promoted; None if that is not known."""

    def ranges(self, queues: Iterable[MessageQueue]) -> Ranges:
        """Return the offsets of the messages that exist now, by queue; empty for a queue that does not exist."""

    def offset_by_time(self, queue: MessageQueue, known: range, timestamp_ms: int) -> int:
        """Return the first of the ``known`` offsets whose message was stored at that time or later; else their end."""

    def mean_size(self, queue: MessageQueue, offsets: range) -> float:
        """Return the mean record size in a range, in bytes, from samples; 0 if no record can be found."""

    def mean_messages(self, queue: MessageQueue, offsets: range) -> float:
        """Return the mean number of messages of a record in a range, from samples: 1 without compressed batches."""

    def plan(self, wanted: Ranges, columns: Sequence[str], options: ReadOptions) -> list[Split]:
        """Divide the ``wanted`` ranges among tasks. No range may be empty."""

    def read(self, options: ReadOptions, schema: pa.Schema, split: Split) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, with exactly this schema, which has stored columns alone.

        Raises DataLost if messages are gone or damaged, unless ``failOnDataLoss`` is false; BodyUnreadable if a body
        cannot be decompressed, unless ``failOnUnreadableBody`` is false; and NotInstalled if the library for a
        compression is not installed.
        """
