"""Record batches: the rows that the kernel collected, as Arrow, and the handling of lost messages.

The kernel writes the values of the wanted columns into buffers (store/kernel/arrow/columns.pxi), and Arrow uses these
buffers without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from rmqclient.errors import DataLost
from rmqclient.spark.scan.columns import schema_of
from rmqclient.spark.scan.read_options import ReadOptions
from rmqclient.store import ColumnBuffer, Columns, MessageQueue
from rmqclient.store.errors import BodyUnreadable
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_TYPES: dict[str, pa.DataType] = {
    field.name: field.type for field in to_arrow_schema(schema_of(properties=True, metadata=True), timezone="UTC")
}
"""The type of each column, as Spark gives it. Spark accepts no other."""


def check_types(schema: pa.Schema) -> None:
    """Raise ValueError for a column of another type than Spark gives it."""
    for field in schema:
        if _TYPES.get(field.name, field.type) != field.type:
            raise ValueError(f"column {field.name} is of type {_TYPES[field.name]}, not {field.type}")


def loss_in_words(queue: MessageQueue, offsets: range, commit_log_offset: int | None, why: str) -> str:
    """Return a sentence about messages that cannot be read; ``commit_log_offset`` is that of the first, if known."""
    broker = f" on {queue.broker_name}" if queue.broker_name else ""
    numbers = f"offset {offsets.start}" if len(offsets) == 1 else f"offsets {offsets.start} to {offsets.stop - 1}"
    place = "" if commit_log_offset is None else f", at {commit_log_offset} of the commit log"
    return f"{queue.topic}, queue {queue.queue_id}{broker}, {numbers}{place}: cannot be read: {why}"


def on_lost(options: ReadOptions) -> Callable[[str], None]:
    """Return the handler of a sentence about lost messages: it raises DataLost, or logs the sentence."""
    return _fail if options.fail_on_data_loss else _pass_over


def _fail(what: str) -> None:
    raise DataLost(f"{what}. To skip such messages, set the option failOnDataLoss to false")


def _pass_over(what: str) -> None:
    _log.warning("%s; skipped because failOnDataLoss=false", what)


@contextmanager
def options_named() -> Iterator[None]:
    """Name the options in the error for a body that cannot be decompressed."""
    try:
        yield
    except BodyUnreadable as error:
        raise BodyUnreadable(
            f"{error}. To read null instead, set the option failOnUnreadableBody to false. The limit is the option "
            "maxOpenedBodyBytes"
        ) from error


def record_batch(columns: Columns, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows that were added to ``columns``, and leave ``columns`` empty."""
    rows, buffers = columns.take()
    if not schema.names:  # without columns, only an array without fields carries the number of rows
        return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))
    arrays = [_array(field.type, rows, *buffers[field.name]) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(kind: pa.DataType, rows: int, nulls: int, buffers: list[ColumnBuffer | None]) -> pa.Array:
    parts: list[Any] = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    if not pa.types.is_map(kind):
        return pa.Array.from_buffers(kind, rows, parts, nulls)
    bitmap, offsets, name_offsets, names, value_offsets, values = parts
    pairs = len(name_offsets) // 4 - 1
    children = [
        pa.Array.from_buffers(kind.key_type, pairs, [None, name_offsets, names]),
        pa.Array.from_buffers(kind.item_type, pairs, [None, value_offsets, values]),
    ]
    entries = pa.StructArray.from_buffers(
        pa.struct([kind.key_field, kind.item_field]), pairs, [None], children=children
    )
    return pa.Array.from_buffers(kind, rows, [bitmap, offsets], children=[entries])
