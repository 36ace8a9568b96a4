"""Columns: those of :mod:`rmqclient.arrow.columns`, as a schema of Spark.

The options ``includeProperties``, ``includeMetadata`` and ``includeHeaders`` add the columns that
:data:`~rmqclient.arrow.columns.USUAL` lacks.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from rmqclient.arrow import columns
from rmqclient.arrow.columns import METADATA, PROPERTIES, USUAL


def schema_of(*, properties: bool = False, metadata: bool = False) -> StructType:
    """Return the schema of the source with these options."""
    return schema_with(USUAL | (PROPERTIES if properties else {}) | (METADATA if metadata else {}))


def schema_with(names: Iterable[str]) -> StructType:
    """Return the schema of these columns alone, named in any case. Raises ValueError for one that does not exist."""
    return from_arrow_schema(columns.schema_of(names))


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the only schema of record batches that Spark accepts for ``schema``."""
    return to_arrow_schema(schema, timezone="UTC")


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
