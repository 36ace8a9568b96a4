"""Writer: the sink ``rmq``, as Spark's Python data source API asks for it.

::

    frame.write.format("rmq").option("topic", "out").mode("append").save("./store")
    frame.writeStream.format("rmq").option("topic", "out").option("checkpointLocation", "./checkpoint").start("./store")

Tasks encode rows into files of their own (:mod:`rmqclient.spark.writing.staging`) and append nothing. A task that
fails, is tried again or runs twice therefore leaves nothing in the log. The driver appends the files that the commit
messages name (:mod:`rmqclient.spark.writing.committing`). A stream writes each row once, even if processes die; so does
a batch write with ``txnAppId`` and ``txnVersion``. See :mod:`rmqclient.spark.writing.write_options` for the options and
:mod:`rmqclient.spark.writing.write_columns` for the columns.

All processes of the job must be on the host of the store, because they share its memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rmqclient.spark.reading.worker_process import keep_objects
from rmqclient.spark.writing import staging
from rmqclient.spark.writing.committing import Batch, commit_once, commit_unnamed
from rmqclient.spark.writing.staging import StagedPart
from rmqclient.spark.writing.write_columns import check_columns
from rmqclient.spark.writing.write_options import parse
from rmqclient.store import open_store
from rmqclient.store.errors import StoreUnusable
from rmqclient.store.log.sizes import settings_of

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID = "sql.streaming.queryId"
"""Local property of a streaming query's task that holds the query id; internal to Spark."""


@dataclass
class Written(WriterCommitMessage):
    """The part that one task has staged, and the query it belongs to."""

    run: str
    staged: StagedPart
    query_id: str | None


class _Staging:
    """The work of both writers in tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType, *, streaming: bool) -> None:
        self.options = parse(options, streaming=streaming)
        check_columns(schema, self.options.topic)
        _make_store(self)
        self.run = staging.new_run()

    def stage(self, batches: Iterable[pa.RecordBatch]) -> Written:
        keep_objects()
        context = TaskContext.get()
        part, attempt = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
        query_id = None if context is None else context.getLocalProperty(QUERY_ID)
        staged = staging.stage(self.options.root, self.run, part, attempt, batches, self.options.topic)
        return Written(self.run, staged, query_id)

    def remove(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        staging.remove_runs(self.options.root, {self.run, *(each.run for each in _written(messages))})


class BatchWriter(DataSourceArrowWriter):
    """Writes a data frame as one batch. Raises ValueError, InvalidName, and the errors of opening a store."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ValueError(
                'mode("overwrite"): a log only grows: use mode("append"), or write to another topic. Only retention '
                "removes messages"
            )
        self._staging = _Staging(options, schema, streaming=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage the rows of one task. Raises as :func:`rmqclient.spark.writing.staging.stage`."""
        return self._staging.stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append what the tasks have staged. Raises as :func:`rmqclient.spark.writing.committing.commit_once`."""
        options = self._staging.options
        parts = tuple(each.staged for each in _written(messages))
        if options.application is None or options.version is None:
            batch = Batch(self._staging.run, 0, parts)
            commit_unnamed(options.root, batch, flush=options.flush)
        else:
            batch = Batch(options.application, options.version, parts, options.topic)
            commit_once(options.root, batch, flush=options.flush)
        self._staging.remove(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the files that the tasks have staged."""
        self._staging.remove(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query, each row once.

    Raises ValueError, InvalidName, and the errors of opening a store. Spark makes another writer in another process to
    commit or to abort. That writer has all it needs in the commit messages.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ValueError(
                'outputMode("complete") would replace all earlier rows, but a log only grows: use '
                'outputMode("append") or outputMode("update")'
            )
        _check_not_gone(options)
        self._staging = _Staging(options, schema, streaming=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage the rows of one task. Raises as :func:`rmqclient.spark.writing.staging.stage`."""
        return self._staging.stage(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Append the parts that the tasks have staged, unless the batch is in the log already.

        Raises as :func:`rmqclient.spark.writing.committing.commit_once`.
        """
        options = self._staging.options
        written = _written(messages)
        application = options.application or next((each.query_id for each in written if each.query_id), None)
        if application is not None:
            parts = tuple(each.staged for each in written)
            is_named = options.application is not None
            batch = Batch(application, batchId, parts, options.topic, is_named=is_named, checkpoint=options.checkpoint)
            commit_once(options.root, batch, flush=options.flush)
        elif written:
            raise ValueError(
                f"this Spark does not tell the query of a task (local property {QUERY_ID}): give the option txnAppId"
            )
        self._staging.remove(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Remove the files that the tasks have staged."""
        self._staging.remove(messages)


def _check_not_gone(given: Mapping[str, str]) -> None:
    """Raise StoreUnusable if the store of a query that has written batches is gone: the next ones would be alone."""
    root = parse(given, streaming=True).root
    checkpoint = next((value for name, value in given.items() if name.lower() == "checkpointlocation"), None)
    if checkpoint is None or root.exists():
        return
    commits = Path(checkpoint.removeprefix("file://").removeprefix("file:"), "commits")
    if commits.is_dir() and any(commits.glob("[0-9]*")):
        raise StoreUnusable(
            f"{root} does not exist, and {checkpoint} says that batches were written: bring that store back, or begin "
            "with a new checkpoint"
        )


def _make_store(staging: _Staging) -> None:
    try:
        settings_of(staging.options.root)
    except StoreUnusable:
        open_store(staging.options.root).close()


def _written(messages: Iterable[WriterCommitMessage | None]) -> list[Written]:
    return [message for message in messages if isinstance(message, Written)]
