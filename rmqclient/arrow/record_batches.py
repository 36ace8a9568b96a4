"""Record batches: the rows that the kernel collected, as Arrow.

The kernel writes the values of the wanted columns into buffers (store/kernel/arrow/columns.pxi), and Arrow uses these
buffers without a copy.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rmqclient.store import ColumnBuffer, Columns, MessageQueue


def loss_in_words(queue: MessageQueue, offsets: range, commit_log_offset: int | None, why: str) -> str:
    """Return a sentence about messages that cannot be read; ``commit_log_offset`` is that of the first, if known."""
    broker = f" on {queue.broker_name}" if queue.broker_name else ""
    numbers = f"offset {offsets.start}" if len(offsets) == 1 else f"offsets {offsets.start} to {offsets.stop - 1}"
    place = "" if commit_log_offset is None else f", at {commit_log_offset} of the commit log"
    return f"{queue.topic}, queue {queue.queue_id}{broker}, {numbers}{place}: cannot be read: {why}"


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
