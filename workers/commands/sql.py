"""``rmq sql``: a query over the topics of a store, each of which is a table."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqclient.workers.console.opening import StoreCannotBeOpened, one_line
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import STORE, StoreOption, name_and_value, refuse, with_output

if TYPE_CHECKING:
    import pyarrow as pa

_NEEDS = "rmq sql needs DuckDB: pip install 'rmqclient[queries]'"


@click.command()
@click.argument("statement", metavar="SQL")
@click.option("--metadata", is_flag=True, help="Add the columns of includeMetadata, and properties.")
@click.option("--archive", metavar="URL", help="Archive with what the directory no longer has; without --store, alone.")
@click.option(
    "--archive-option",
    "options",
    type=name_and_value,
    multiple=True,
    metavar="NAME=VALUE",
    help="For the file system of the archive, such as endpoint_override=127.0.0.1:9000. May be repeated.",
)
@click.option("--store", "root", cls=StoreOption, type=STORE, help="Directory of the store.")
@with_output
def sql(
    statement: str,
    metadata: bool,
    archive: str | None,
    options: tuple[tuple[str, str], ...],
    root: Path | str | None,
    out: Output,
) -> None:
    """Run SQL by DuckDB, to which each topic is a table. Joins no group and changes nothing in the store.

    Columns: key, value, topic, partition, offset, timestamp, born_timestamp, tags. The body is bytes: decode(value). A
    topic whose name SQL would not take stands in quotation marks, such as "%DLQ%billing".

    Needs the extra: pip install 'rmqclient[queries]'
    """
    if archive is None:
        refuse(["options"], "without --archive")
        if root is None:
            raise click.UsageError("no store: give --store DIR, set RMQ_STORE, or give --archive URL")
    try:
        import duckdb
        import pyarrow as pa

        from rmqclient.arrow.columns import COMPUTED_METADATA, METADATA, PROPERTIES, USUAL
        from rmqclient.arrow.queries import query
    except ImportError as error:
        raise click.ClickException(_NEEDS) from error
    from rmqclient.archive.errors import ArchiveError
    from rmqclient.errors import NotOnCluster, StoreUnusable
    from rmqclient.place import scheme_of, shown

    if isinstance(root, str) and scheme_of(root):
        raise NotOnCluster(f"{shown(root)} is a cluster, whose brokers run no queries: name a directory")
    columns = (*USUAL, *PROPERTIES, *METADATA, *COMPUTED_METADATA) if metadata else tuple(USUAL)
    place, beside = (root, archive) if root is not None else (str(archive), None)
    try:
        with query(place, statement, columns=columns, archive=beside, archive_options=dict(options)) as found:
            _print(_rows(found), out)
    except (StoreUnusable, ArchiveError) as error:
        raise StoreCannotBeOpened(f"cannot open the store {place}: {one_line(error)}") from error
    except (duckdb.Error, pa.ArrowException) as error:
        raise click.ClickException(one_line(error)) from error


def _print(rows: Iterator[dict[str, Any]], out: Output) -> None:
    if out.form != "jsonl":
        out.write(list(rows), nothing="no row")
        return
    for row in rows:  # there may be more than fit into memory
        out.write(row)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        names = _distinct(batch.schema.names)
        columns = [column.to_pylist(maps_as_pydicts="lossy") for column in batch.columns]
        for values in zip(*columns, strict=True):
            yield dict(_cell(name, value) for name, value in zip(names, values, strict=True))


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names of columns, those that were there before with a number: ``count``, ``count_1``."""
    found: list[str] = []
    for name in names:
        tries = (name, *(f"{name}_{number}" for number in range(1, len(names) + 1)))
        found.append(next(each for each in tries if each not in found))
    return found


def _cell(name: str, value: Any) -> tuple[str, Any]:
    """Return a value as JSON has it. Bytes are text, or, if they are not UTF-8, another field, as in `rmq tail`."""
    if isinstance(value, bytes):
        try:
            return name, value.decode()
        except UnicodeDecodeError:
            return f"{name}_base64", base64.b64encode(value).decode()
    return name, _plain(value)


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return _cell("", value)[1]
        case Decimal():
            whole, near = value == value.to_integral_value(), float(value)
            return int(value) if whole else near if Decimal(repr(near)) == value else str(value)
        case datetime.date() | datetime.time():
            return value.isoformat()
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case (months, days, nanoseconds):  # an interval
            return f"P{months}M{days}DT{nanoseconds / 1e9:g}S"
    return str(value)
