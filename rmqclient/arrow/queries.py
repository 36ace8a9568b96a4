"""Queries: SQL over the topics of a store, by DuckDB. Each topic is a table, with the columns of a dataset of it.

Only the topics whose names stand in the query are opened, so a store may have thousands. DuckDB hands the columns and
conditions of a query to :class:`rmqclient.arrow.messages.Messages`, which reads no more than those need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from rmqclient.arrow.columns import USUAL
from rmqclient.arrow.messages import messages, topics
from rmqclient.errors import FilterError, UnknownTopic

_ROWS = 10_000
_NO_TABLE = "Table with name "


@contextmanager
def query(
    store: str | Path,
    sql: str,
    *,
    columns: Iterable[str] = tuple(USUAL),
    archive: str | None = None,
    archive_options: Mapping[str, str] | None = None,
) -> Iterator[pa.RecordBatchReader]:
    """Yield what a query finds, as a stream, which is valid within the ``with``; of several statements, the last one's.

    ``store`` and the archive are those of :func:`rmqclient.arrow.messages.messages`, and each topic has these columns.
    A name that SQL would not take stands in quotation marks, such as ``"%DLQ%billing"``. Times are in UTC.

    Raises FilterError for what DuckDB does not understand, and for topics that differ in the case of letters alone;
    UnknownTopic for a table that is no topic; what DuckDB and :func:`~rmqclient.arrow.messages.messages` raise.
    """
    if not sql.strip():
        raise FilterError("the query is empty")
    known = topics(store, archive=archive, archive_options=archive_options)
    columns = tuple(columns)
    with duckdb.connect() as connection:
        connection.execute("SET python_enable_replacements = false")  # a table is no variable of this function
        connection.execute("SET TimeZone = 'UTC'")
        for topic in _named(known, sql):
            dataset = messages(store, topic, columns=columns, archive=archive, archive_options=archive_options)
            connection.register(topic, dataset)
        try:
            found = connection.sql(sql)
        except duckdb.CatalogException as error:
            if _NO_TABLE in str(error):
                raise UnknownTopic(
                    f"{_said(error).partition('!')[0]}; topics there: {', '.join(known) or 'none'}"
                ) from error
            raise FilterError(_said(error)) from error
        except duckdb.ProgrammingError as error:
            raise FilterError(_said(error)) from error
        if found is None:  # of DuckDB 1, for what gives no rows, such as COPY
            yield pa.RecordBatchReader.from_batches(pa.schema([]), iter(()))
        else:
            yield found.to_arrow_reader(_ROWS)


def _named(known: Iterable[str], sql: str) -> list[str]:
    """Return the topics whose names stand in a query, in any case of letters. Raises FilterError if SQL mixes two up.

    One whose name is a part of another word is among them, and does not matter.
    """
    found: dict[str, str] = {}
    for topic in known:
        name = topic.lower()
        if name not in sql.lower():
            continue
        other = found.get(name)
        if other is not None and other in sql and topic in sql:
            raise FilterError(f"{other} and {topic} are one name to SQL: query each by itself")
        if other is None or topic in sql:
            found[name] = topic
    return list(found.values())


def _said(error: Exception) -> str:
    """Return what DuckDB says of a query, without the line that it shows again."""
    return " ".join(str(error).partition("\n\nLINE ")[0].split())
