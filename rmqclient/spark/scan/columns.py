"""Columns: the fields of a message that the source offers, named as in Spark's Kafka source.

====================  ===================  ==========================================================================
column                type                 meaning
====================  ===================  ==========================================================================
key                   string               keys of the message, separated by spaces [KEYS]; null without a key
value                 binary               body, decompressed; null: see failOnUnreadableBody
topic                 string
partition             int                  queue id
offset                long                 queue offset
timestamp             timestamp            when it was stored
born_timestamp        timestamp            when it was sent, by the producer's clock
tags                  string               tag of the message; null without a tag
properties            map<string,string>   includeProperties: every property on disk except the CRC
commit_log_offset     long                 includeMetadata: first byte of the record in the commit log
size                  int                  includeMetadata: bytes of the whole record
flag                  int                  includeMetadata: the application's own number
sys_flag              int                  includeMetadata: compression, transaction state, address kinds
reconsume_times       int                  includeMetadata: delivery attempts before this record was stored
born_host             string               includeMetadata: address and port of the producer
store_host            string               includeMetadata: address and port of the store
msg_id                string               includeMetadata: message id: the unique key, otherwise the offset message id
broker_name           string               includeMetadata: the broker of the queue in a cluster; empty for a store
index                 int                  includeMetadata: place within the record: 0, but for a compressed batch
headers               array of structs     includeHeaders: the properties as headers of Kafka
timestampType         int                  includeHeaders: always 1: ``timestamp`` is when the message was stored
====================  ===================  ==========================================================================

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

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

USUAL: dict[str, DataType] = {
    "key": StringType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "born_timestamp": TimestampType(),
    "tags": StringType(),
}
"""Always there."""

PROPERTIES: dict[str, DataType] = {"properties": MapType(StringType(), StringType())}
"""With ``includeProperties``."""

METADATA: dict[str, DataType] = {
    "commit_log_offset": LongType(),
    "size": IntegerType(),
    "flag": IntegerType(),
    "sys_flag": IntegerType(),
    "reconsume_times": IntegerType(),
    "born_host": StringType(),
    "store_host": StringType(),
    "msg_id": StringType(),
    "broker_name": StringType(),
}
"""With ``includeMetadata``."""

COMPUTED_METADATA: dict[str, DataType] = {"index": IntegerType()}
"""With ``includeMetadata``, too: computed."""

HEADERS: dict[str, DataType] = {
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
    "timestampType": IntegerType(),
}
"""With ``includeHeaders``, as Spark's Kafka source has them: computed."""

MADE_OF: dict[str, tuple[str, ...]] = {
    "index": ("commit_log_offset", "broker_name", "flag"),
    "headers": ("properties",),
    "timestampType": ("flag",),
}
"""The columns of records that the computed ones need: see :mod:`rmqclient.spark.scan.derived`."""

_ALL = USUAL | PROPERTIES | METADATA | COMPUTED_METADATA | HEADERS
_IN_ANY_CASE = {name.lower(): name for name in _ALL}

IN_ENTRIES = frozenset({"topic", "partition", "offset", "size", "commit_log_offset", "broker_name"})
"""Columns answered from the consume queue, without reading the log."""


def schema_of(*, properties: bool = False, metadata: bool = False) -> StructType:
    """Return the schema of the source with these options."""
    columns = USUAL | (PROPERTIES if properties else {}) | (METADATA if metadata else {})
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def schema_with(names: Iterable[str]) -> StructType:
    """Return the schema of these columns alone, named in any case. Raises ValueError for one that does not exist."""
    names = list(names)
    for name in names:
        if name.lower() not in _IN_ANY_CASE:
            raise ValueError(f"column {name}: the rmq source has {', '.join(_ALL)}")
    return StructType([StructField(own, _ALL[own]) for own in (_IN_ANY_CASE[name.lower()] for name in names)])


def check_schema(schema: StructType) -> StructType:
    """Return ``schema`` with the names as the source has them: Spark takes them in any case.

    Raises ValueError if the source lacks a column of it, or has the column with another type.
    """
    known = schema_with(schema.names)
    for column, own in zip(schema.fields, known.fields, strict=True):
        if column.dataType != own.dataType:
            shown = own.dataType.simpleString()
            raise ValueError(
                f"column {column.name}: the rmq source has it as {shown}, not {column.dataType.simpleString()}"
            )
    return known
