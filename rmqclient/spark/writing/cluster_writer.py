"""Cluster writer: the sink ``rmq`` for a RocketMQ cluster. Each row is stored at least once.

Tasks send their rows to the brokers themselves. What a broker has stored is there for every consumer at once, and
cannot be taken back: brokers have no transaction over several messages. So if a task fails and is tried again, or runs
twice, or a batch is run again after a kill, its rows are stored again. The copies of a row have the same message id,
made of the application, the topic, the batch, the part and the row, if the rows come again in the same order. A reader
drops the copies by it::

    frame.dropDuplicates(["msg_id"])

======================  =============================  =====================
write                   application                    batch
======================  =============================  =====================
a stream                ``txnAppId``, or the query id  number of micro-batch
a batch                 ``txnAppId``                   ``txnVersion``
a batch without these   a random one                   0
======================  =============================  =====================
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rmqclient.cluster.address.url import ClusterURL
from rmqclient.spark.cluster.clients import kept_client
from rmqclient.spark.reading.worker_process import keep_objects
from rmqclient.spark.writing.sending import RowSender
from rmqclient.spark.writing.write_columns import check_columns
from rmqclient.spark.writing.write_options import ClusterWriteOptions, keys_of, parse_for_cluster
from rmqclient.store.append.staged import unique_prefix
from rmqclient.store.threads.logs import Log

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
"""Local properties of a streaming query's task; internal to Spark."""

_log = Log(__name__)


@dataclass
class Sent(WriterCommitMessage):
    """What one task has sent."""

    rows: int


class ClusterBatchWriter(DataSourceArrowWriter):
    """Sends a data frame as one batch. Raises ValueError, InvalidName, InvalidURL."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ValueError('mode("overwrite"): a log only grows: use mode("append"), or write to another topic')
        self._options = _checked(options, schema, streaming=False)
        self._application = self._options.application or secrets.token_hex(16)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of one task. Raises as :meth:`rmqclient.spark.writing.sending.RowSender.send`."""
        return _send(self._options, self._application, self._options.version or 0, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing: the rows are stored."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log how many rows are stored although the write failed."""
        _log_sent(messages)


class ClusterStreamWriter(DataSourceStreamArrowWriter):
    """Sends the micro-batches of a query. Raises ValueError, InvalidName, InvalidURL."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ValueError(
                'outputMode("complete") would replace all earlier rows, but a log only grows: use '
                'outputMode("append") or outputMode("update")'
            )
        self._options = _checked(options, schema, streaming=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of one task. Raises as :meth:`rmqclient.spark.writing.sending.RowSender.send`."""
        context = TaskContext.get()
        query = self._options.application or (context and context.getLocalProperty(_QUERY_ID))
        batch = context and context.getLocalProperty(_BATCH_ID)
        if not query or not batch:
            raise ValueError(
                f"this Spark does not tell the query and the batch of a task (local properties {_QUERY_ID} and "
                f"{_BATCH_ID}), which message ids are made of: write in foreachBatch, with txnAppId and txnVersion"
            )
        return _send(self._options, query, int(batch), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: the rows are stored."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Log how many rows are stored although the batch failed."""
        _log_sent(messages)


def _checked(options: Mapping[str, str], schema: StructType, *, streaming: bool) -> ClusterWriteOptions:
    checked = parse_for_cluster(options, streaming=streaming)
    ClusterURL.parse(checked.url)
    check_columns(schema, checked.topic, to_cluster=True)
    return checked


def _send(options: ClusterWriteOptions, application: str, batch: int, rows: Iterator[pa.RecordBatch]) -> Sent:
    context = TaskContext.get()
    prefix = unique_prefix(keys_of(application, options.topic), batch, 0 if context is None else context.partitionId())
    keep_objects()
    sender = RowSender(kept_client(options.url), options.group, prefix, options.topic)
    sender.send(rows)
    return Sent(sender.rows)


def _log_sent(messages: Sequence[WriterCommitMessage | None]) -> None:
    rows = sum(message.rows for message in messages if isinstance(message, Sent))
    if rows:
        _log.warning("the write failed; %d rows or more are stored, and are stored again when it is repeated", rows)
