"""Writer: the sink ``rmq``, as Spark's Python data source API asks for it.

::

    frame.write.format("rmq").option("topic", "out").mode("append").save("./store")
    frame.writeStream.format("rmq").option("topic", "out").option("checkpointLocation", "./checkpoint").start("./store")

Tasks encode rows into files of their own (:mod:`rmqclient.spark.writing.staging`) and append nothing, so that a task
that fails, is tried again or runs twice leaves nothing in the log. The driver appends what the commit messages name
(:mod:`rmqclient.spark.writing.committing`). A stream writes each row once, whatever dies; a batch write does with
``txnAppId`` and ``txnVersion``. Options stand in :mod:`rmqclient.spark.writing.write_options`, columns in
:mod:`rmqclient.spark.writing.write_columns`.

All processes of the job must be on the host of the store, because the store is memory that processes share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rmqclient.spark.writing import staging
from rmqclient.spark.writing.committing import Batch, commit_once, commit_unnamed
from rmqclient.spark.writing.staging import StagedPart
from rmqclient.spark.writing.write_columns import check_columns
from rmqclient.spark.writing.write_options import parse
from rmqclient.store import open_store
from rmqclient.store.errors import StoreUnusable
from rmqclient.store.inspect.reading import settings_of

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID = "sql.streaming.queryId"
"""Local property of a task of a streaming query; internal to Spark."""


@dataclass
class Written(WriterCommitMessage):
    """What one task has staged, and for which query."""

    run: str
    staged: StagedPart
    query_id: str | None


class _Staging:
    """What both writers do in tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, streaming: bool) -> None:
        self.options = parse(options, streaming=streaming)
        check_columns(schema, self.options.topic)
        _make_store(self)
        self.run = staging.new_run()

    def stage(self, batches: Iterable[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        part, attempt = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
        query_id = None if context is None else context.getLocalProperty(QUERY_ID)
        staged = staging.stage(self.options.root, self.run, part, attempt, batches, self.options.topic)
        return Written(self.run, staged, query_id)

    def remove(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        staging.remove_runs(self.options.root, {self.run, *(each.run for each in _written(messages))})


class BatchWriter(DataSourceArrowWriter):
    """Writes a data frame once. Raises ValueError, InvalidName, and what opening a store raises."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ValueError(
                'mode("overwrite"): a log is only added to: use mode("append"), or write to another topic; messages go '
                "by retention"
            )
        self._staging = _Staging(options, schema, streaming=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage the rows of one task. Raises MessageRejected and others, which name the row."""
        return self._staging.stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append what the tasks have staged. Raises as :func:`rmqclient.spark.writing.committing.commit_once`."""
        options = self._staging.options
        parts = tuple(each.staged for each in _written(messages))
        if options.application is None or options.version is None:
            batch = Batch(self._staging.run, 0, parts)
            commit_unnamed(options.root, batch, flush=options.flush)
        else:
            commit_once(options.root, Batch(options.application, options.version, parts), flush=options.flush)
        self._staging.remove(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what the tasks have staged."""
        self._staging.remove(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query, each row once. Raises ValueError, InvalidName, and what opening raises.

    Spark makes another one, in another process, to commit or to abort: all that it needs is in the messages.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ValueError(
                'outputMode("complete") replaces all that was written, and a log is only added to: use '
                'outputMode("append") or outputMode("update")'
            )
        self._staging = _Staging(options, schema, streaming=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage the rows of one task. Raises MessageRejected and others, which name the row."""
        return self._staging.stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Append what the tasks have staged, unless the batch is in the log.

        Raises as :func:`rmqclient.spark.writing.committing.commit_once`.
        """
        options = self._staging.options
        written = _written(messages)
        application = options.application or next((each.query_id for each in written if each.query_id), None)
        if application is not None:
            parts = tuple(each.staged for each in written)
            batch = Batch(application, batchId, parts, is_named=options.application is not None)
            commit_once(options.root, batch, flush=options.flush)
        elif written:
            raise ValueError(
                f"this Spark does not say which query a task belongs to (local property {QUERY_ID}): give the option "
                "txnAppId"
            )
        self._staging.remove(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Remove what the tasks have staged."""
        self._staging.remove(messages)


def _make_store(staging: _Staging) -> None:
    try:
        settings_of(staging.options.root)
    except StoreUnusable:
        open_store(staging.options.root).close()


def _written(messages: Iterable[WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]
