"""Tuples: a textbook Python data source, which yields a tuple for each message of a store.

It finds the records through the consume queues and decodes them with ``struct``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rmqclient.spark.scan.columns import schema_of
from rmqclient.store import MessageQueue, layout
from rmqclient.store.inspect.view import LocalView

Row = tuple[str | None, bytes, str, int, int, datetime, datetime, str | None]

_ENTRY = layout.CONSUME_QUEUE_ENTRY
_HEADER = layout.RECORD_HEADER


@dataclass(frozen=True)
class Part(InputPartition):
    """Some messages of one queue."""

    topic: str
    queue_id: int
    first: int
    stop: int


class TupleSource(DataSource):
    """The store in the directory ``path``, the topic ``subscribe``, and at most ``messages`` of each queue."""

    @classmethod
    def name(cls) -> str:
        """Return the format."""
        return "tuples"

    def schema(self) -> StructType:
        """Return the usual columns."""
        return schema_of()

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - every column is yielded
        """Return the reader."""
        limit, parts = int(self.options.get("messages", 1 << 62)), int(self.options.get("parts", 1))
        return _Reader(Path(self.options["path"]), self.options["subscribe"], limit, parts)


class _Reader(DataSourceReader):
    def __init__(self, root: Path, topic: str, limit: int, parts: int) -> None:
        self._root, self._topic, self._limit, self._parts = root, topic, limit, parts

    def partitions(self) -> list[InputPartition]:
        view = LocalView(self._root)
        planned: list[InputPartition] = []
        for queue in view.queues():
            known = view.offsets(queue)[: self._limit]
            step = max(1, -(-len(known) // self._parts))
            if queue.topic == self._topic:
                planned += [
                    Part(queue.topic, queue.queue_id, first, min(first + step, known.stop)) for first in known[::step]
                ]
        return planned

    def read(self, partition: InputPartition) -> Iterator[Row]:
        assert isinstance(partition, Part)
        view = LocalView(self._root)
        queue, at = MessageQueue(partition.topic, partition.queue_id), partition.first
        while at < partition.stop:
            entries = view.entries(queue, at, partition.stop)
            for commit_log_offset, size, _ in _ENTRY.iter_unpack(entries):
                log = view.log(commit_log_offset, size)
                start = commit_log_offset - log.base
                yield _row(bytes(memoryview(log.content)[start : start + size]))
            at += len(entries) // _ENTRY.size


def _row(record: bytes) -> Row:
    header = _HEADER.unpack_from(record)
    queue_id, queue_offset, born, stored, body_size = header[3], header[5], header[8], header[11], header[16]
    body_end = _HEADER.size + body_size
    topic_end = body_end + 1 + record[body_end]
    topic = record[body_end + 1 : topic_end].decode()
    named = dict(pair.split("\x01") for pair in record[topic_end + 2 :].decode().split("\x02") if pair)
    body = record[_HEADER.size : body_end]
    return named.get("KEYS"), body, topic, queue_id, queue_offset, _time(stored), _time(born), named.get("TAGS")


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1_000, UTC)
