"""Derived: columns of a read that are computed from the columns that records have.

==============  ==========================================  ===========================================================
column          made of                                     how
==============  ==========================================  ===========================================================
index           commit_log_offset, broker_name, flag        place of the row among those of its record
headers         properties                                  the same, as Spark's Kafka source has them
timestampType   flag                                        1: ``timestamp`` is when the message was stored
==============  ==========================================  ===========================================================

``flag`` stands in no consume queue entry: it makes a read look into the records, which alone tell their messages apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyarrow import compute

_LOG_APPEND_TIME = 1
"""Kafka's number of a timestamp that a broker set."""


def derived(batches: Iterable[pa.RecordBatch], schema: pa.Schema, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows with the columns of ``schema`` under these names.

    ``batches`` have the columns of :func:`~rmqclient.arrow.columns.stored_schema`, and the rows of a record follow each
    other.
    """
    wanted = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
    places = _Places()
    for batch in batches:
        yield pa.RecordBatch.from_arrays(
            [_column(batch, own.name, field.type, places) for own, field in zip(schema, wanted, strict=True)],
            schema=wanted,
        )


class _Places:
    """Numbers the rows of each record, from 0 on."""

    def __init__(self) -> None:
        self._record: tuple[int, str] | None = None
        self._next = 0

    def of(self, commit_log_offsets: pa.Array, brokers: pa.Array) -> pa.Array:
        """Return the index of each row in its record; a record may continue from the batch before."""
        offsets = commit_log_offsets.to_numpy()
        begins = np.ones(len(offsets), dtype=bool)
        begins[0] = (offsets[0], brokers[0].as_py()) != self._record
        same_broker = compute.equal(brokers[1:], brokers[:-1]).to_numpy(zero_copy_only=False)
        begins[1:] = (offsets[1:] != offsets[:-1]) | ~same_broker
        rows = np.arange(len(offsets))
        places = rows - np.maximum.accumulate(np.where(begins, rows, -self._next))
        self._record, self._next = (offsets[-1], brokers[-1].as_py()), int(places[-1]) + 1
        return pa.array(places, pa.int32())


def _column(batch: pa.RecordBatch, name: str, kind: pa.DataType, places: _Places) -> pa.Array:
    if name == "index":
        return places.of(batch.column("commit_log_offset"), batch.column("broker_name"))
    if name == "timestampType":
        return pa.array(np.full(batch.num_rows, _LOG_APPEND_TIME, np.int32))
    if name == "headers":
        properties = batch.column("properties")
        pairs = pa.StructArray.from_arrays([properties.keys, properties.items], names=["key", "value"])
        return pa.ListArray.from_arrays(properties.offsets, pairs).cast(kind)
    return batch.column(name)
