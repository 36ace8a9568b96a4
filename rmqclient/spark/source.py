"""Source: the Spark data source ``rmq``."""

# ruff: noqa: PLC0415 - imports inside functions: a store needs nothing of the cluster

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from rmqclient.arrow.columns import COMPUTED_METADATA, HEADERS
from rmqclient.spark.reading.batch_reader import BatchReader, Present, present
from rmqclient.spark.reading.places import open_place
from rmqclient.spark.reading.stream_reader import StreamReader
from rmqclient.spark.scan import read_options
from rmqclient.spark.scan.columns import check_schema, schema_of, schema_with
from rmqclient.spark.writing.write_options import is_for_cluster
from rmqclient.spark.writing.writer import BatchWriter, StreamWriter


class RmqDataSource(DataSource):
    """The class behind ``format("rmq")``. Spark makes it with the DataFrame, and calls each method in a new process."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._there = _present(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "rmq"

    def schema(self) -> StructType:
        """Return the columns that the options ask for. Raises ValueError."""
        if names := read_options.only_columns(self.options):
            return schema_with(names)
        properties, metadata, headers = read_options.more_columns(self.options)
        more = (*(COMPUTED_METADATA if metadata else ()), *(HEADERS if headers else ()))
        return schema_with([*schema_of(properties=properties, metadata=metadata).names, *more])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch. Raises ValueError for columns or options that do not exist."""
        check_schema(schema)
        return BatchReader(read_options.parse(self.options, streaming=False), schema, self._there)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream. Raises ValueError for columns or options that do not exist."""
        check_schema(schema)
        return StreamReader(read_options.parse(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of a batch. Raises as the class that it is of."""
        if is_for_cluster(self.options):
            from rmqclient.spark.writing.cluster_writer import ClusterBatchWriter

            return ClusterBatchWriter(self.options, schema, overwrite)
        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's
        """Return the writer of a stream. Raises as the class that it is of."""
        if is_for_cluster(self.options):
            from rmqclient.spark.writing.cluster_writer import ClusterStreamWriter

            return ClusterStreamWriter(self.options, schema, overwrite)
        return StreamWriter(self.options, schema, overwrite)


def _present(options: Mapping[str, str]) -> Present | None:
    """Return the offsets that the selected queues of a read have now, at which its DataFrame stays.

    None for a write, and for a read that cannot be made: its reader raises the error.
    """
    if not read_options.has_selection(options):
        return None
    try:
        asked = read_options.parse(options, streaming=False)
        return present(asked, open_place(asked))
    except Exception:  # noqa: BLE001 - of any kind: a stream, which has other options, or an error that is raised later
        return None
