"""Columns: the fields of a message as Arrow columns, named as in Spark's Kafka source.

====================  ====================  =========================================================================
column                type                  meaning
====================  ====================  =========================================================================
key                   string                keys of the message, separated by spaces [KEYS]; null without a key
value                 binary                body, decompressed; null if it cannot be read and that is allowed
topic                 string
partition             int32                 queue id
offset                int64                 queue offset
timestamp             timestamp[us, UTC]    when it was stored
born_timestamp        timestamp[us, UTC]    when it was sent, by the producer's clock
tags                  string                tag of the message; null without a tag
properties            map<string, string>   every property on disk except the CRC
commit_log_offset     int64                 first byte of the record in the commit log
size                  int32                 bytes of the whole record
flag                  int32                 the application's own number
sys_flag              int32                 compression, transaction state, address kinds
reconsume_times       int32                 delivery attempts before this record was stored
born_host             string                address and port of the producer
store_host            string                address and port of the store
msg_id                string                message id: the unique key, otherwise the offset message id
broker_name           string                the broker of the queue in a cluster; empty for a store
index                 int32                 place within the record: 0, but for a compressed batch
headers               list of structs       the properties as headers of Kafka
timestampType         int32                 always 1, as in Kafka: ``timestamp`` is when the message was stored
====================  ====================  =========================================================================

A time outside of the years 2 to 9997, as a producer may write it, becomes the nearest one inside.

In a cluster, (topic, broker_name, partition) is a queue: brokers number their queues from 0, each for itself. Likewise
``commit_log_offset`` and ``size`` are those of the record in its broker.

A compressed batch (:mod:`rmqclient.store.log.inner_batch`) gives a row for each of its messages. All these rows have
the offsets of the batch's record; (topic, broker_name, partition, offset, index) is unique. A read of
:data:`IN_ENTRIES` columns alone gives one row for the whole batch, because a consume queue entry does not tell how many
messages its record holds.

A stored column is read by ``store/kernel/arrow/columns.pxi``, a computed one made by :mod:`.derived`.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

_TIME = pa.timestamp("us", tz="UTC")

USUAL: dict[str, pa.DataType] = {
    "key": pa.string(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIME,
    "born_timestamp": _TIME,
    "tags": pa.string(),
}
"""What a read has that names no columns."""

PROPERTIES: dict[str, pa.DataType] = {"properties": pa.map_(pa.string(), pa.string())}

METADATA: dict[str, pa.DataType] = {
    "commit_log_offset": pa.int64(),
    "size": pa.int32(),
    "flag": pa.int32(),
    "sys_flag": pa.int32(),
    "reconsume_times": pa.int32(),
    "born_host": pa.string(),
    "store_host": pa.string(),
    "msg_id": pa.string(),
    "broker_name": pa.string(),
}

COMPUTED_METADATA: dict[str, pa.DataType] = {"index": pa.int32()}

HEADERS: dict[str, pa.DataType] = {
    "headers": pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    "timestampType": pa.int32(),
}
"""As Spark's Kafka source has them: computed."""

MADE_OF: dict[str, tuple[str, ...]] = {
    "index": ("commit_log_offset", "broker_name", "flag"),
    "headers": ("properties",),
    "timestampType": ("flag",),
}
"""The columns of records that the computed ones need: see :mod:`.derived`."""

ALL = USUAL | PROPERTIES | METADATA | COMPUTED_METADATA | HEADERS
_IN_ANY_CASE = {name.lower(): name for name in ALL}

IN_ENTRIES = frozenset({"topic", "partition", "offset", "size", "commit_log_offset", "broker_name"})
"""Columns answered from the consume queue, without reading the log."""


def schema_of(names: Iterable[str] = USUAL) -> pa.Schema:
    """Return the schema of these columns, named in any case. Raises ValueError for one that does not exist."""
    own = [_own(name) for name in names]
    return pa.schema([(name, ALL[name]) for name in own])


def _own(name: str) -> str:
    if name.lower() not in _IN_ANY_CASE:
        raise ValueError(f"column {name}: a message has {', '.join(ALL)}")
    return _IN_ANY_CASE[name.lower()]


def check_types(schema: pa.Schema) -> None:
    """Raise ValueError for a column of another type than :data:`ALL` gives it."""
    for field in schema:
        if ALL.get(field.name, field.type) != field.type:
            raise ValueError(f"column {field.name} is of type {ALL[field.name]}, not {field.type}")


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns that are to be read for ``schema``."""
    names = [name for column in schema.names for name in MADE_OF.get(column, (column,))]
    return schema_of(dict.fromkeys(names))
