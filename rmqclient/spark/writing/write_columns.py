"""Columns of a write: the columns of a data frame that make a message, and the types that they may have.

==============  =============================  =====================================================================
column          type                           meaning
==============  =============================  =====================================================================
value           binary, string                 body; required, never null
key             string, binary                 keys of the message, separated by spaces [KEYS]. A row without
                                               ``partition`` goes to a queue by the hash of its key, which is then its
                                               sharding key, too. Rows without a key go to the queues in turn
topic           string                         topic of the row, never null; or give the option ``topic``
partition       int, smallint, tinyint, bigint queue id; null as without this column
tags            string                         tag of the message, for filters
properties      map<string,string>             properties of the application
born_timestamp  timestamp                      when the message was sent; null: time of the append
broker_name     string                         cluster only: the broker of the queue id; null if ``partition`` is null
==============  =============================  =====================================================================

An empty key or tag counts as missing, as in RocketMQ. Names may be in any case, as Spark takes them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from rmqclient.store.errors import MessageRejected

_BROKER = "broker_name"
_TEXT = (StringType, BinaryType)
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "value": (BinaryType, StringType),
    "key": _TEXT,
    "topic": (StringType,),
    "partition": (IntegerType, ShortType, ByteType, LongType),
    "tags": (StringType,),
    "properties": (MapType,),
    "born_timestamp": (TimestampType,),
    _BROKER: (StringType,),
}
_ARROW = {
    "value": pa.binary(),
    "key": pa.binary(),
    "topic": pa.binary(),
    "partition": pa.int32(),
    "tags": pa.binary(),
    "properties": pa.map_(pa.string(), pa.string()),
    "born_timestamp": pa.timestamp("us", tz="UTC"),
    _BROKER: pa.string(),
}


def check_columns(schema: StructType, topic: str | None, *, to_cluster: bool = False) -> None:
    """Raise ValueError for a column that is unknown, missing or of a wrong type."""
    given = schema.fieldNames()
    names = [name.lower() for name in given]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"column {twice[0]}: there are several of this name, in whatever case; drop the others")
    unknown = [each for each in given if each.lower() not in _TYPES or (each.lower() == _BROKER and not to_cluster)]
    if to_cluster and "partition" in names and _BROKER not in names:
        raise ValueError(
            f"column partition: each broker of a cluster numbers its queues from 0: add the column {_BROKER}, or "
            'remove partition with df.drop("partition") to let the key choose the queue'
        )
    if unknown:
        dropped = ", ".join(f'"{name}"' for name in unknown)
        known = ", ".join(_known(to_cluster))
        raise ValueError(
            f"column {unknown[0]}: a write to rmq takes {known}; remove the others with df.drop({dropped})"
        )
    for field in schema.fields:
        name = field.name.lower()
        if not isinstance(field.dataType, _TYPES[name]) or not _holds_text(field.dataType):
            wanted = "map<string,string>" if name == "properties" else _names(_TYPES[name])
            raise ValueError(
                f"column {field.name} is of type {field.dataType.simpleString()}: it must be {wanted}; cast it"
            )
    if "value" not in names:
        raise ValueError(
            'column value is missing: it is the body of each message: df.select(F.to_json(...).alias("value"))'
        )
    if topic is None and "topic" not in names:
        raise ValueError('option topic is missing, and there is no column topic: .option("topic", "orders")')


def exported(batch: pa.RecordBatch, topic: str | None) -> dict[str, Any]:
    """Return the columns of a batch as the kernel takes them. Raises MessageRejected."""
    return {name: column.__arrow_c_array__() for name, column in cast(batch, topic).items()}


def cast(batch: pa.RecordBatch, topic: str | None) -> dict[str, pa.Array]:
    """Return the columns of a batch with one type for each name; without topics if ``topic`` is that of every row.

    Raises MessageRejected.
    """
    columns = {}
    for given, column in zip(batch.schema.names, batch.columns, strict=True):
        name = given.lower()
        if name == "topic" and topic is not None:
            continue
        try:
            columns[name] = column.cast(_ARROW[name])
        except pa.ArrowInvalid as error:
            raise MessageRejected(f"column {name}: {error}; it must fit {_ARROW[name]}") from None
    return columns


def _known(to_cluster: bool) -> list[str]:
    return [name for name in _TYPES if to_cluster or name != _BROKER]


def _holds_text(kind: DataType) -> bool:
    return not isinstance(kind, MapType) or (
        isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
    )


def _names(kinds: tuple[type[DataType], ...]) -> str:
    return " or ".join(kind().simpleString() for kind in kinds)
