"""``rmq topic table``: the present value of each key of a topic."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqclient.workers.console import status
from rmqclient.workers.console.opening import opened_backend
from rmqclient.workers.console.output import Output, to_json
from rmqclient.workers.console.parameters import with_rows, with_store
from rmqclient.workers.console.watching import with_watch

if TYPE_CHECKING:
    from rmqclient import Table
    from rmqclient.tables.table import Snapshot


@click.command("table")
@click.argument("topic_name", metavar="TOPIC")
@click.option("--key", "keys", multiple=True, help="Only this key; may be repeated.")
@with_store
@with_rows
@with_watch
def topic_table(topic_name: str, keys: tuple[str, ...], root: Path | str, out: Output) -> None:
    """Show the last value of each key of TOPIC, sorted by key. A message with an empty body has deleted its key.

    A JSON value is printed as JSON, other text as text, and other bytes as base64 under value_base64.
    """
    from rmqclient import Table

    with opened_backend(root) as backend:
        backend.topics.queues(topic_name)  # raises UnknownTopic: a table would wait for it to be made
        with Table(backend, topic_name) as table:
            rows = _rows(table, keys)
    out.write(rows, line=lambda row: {"key": row["key"], "value": _printed(row)})


def _rows(table: Table, keys: Sequence[str]) -> list[dict[str, Any]]:
    missing = [key for key in keys if key not in table]
    if missing:
        raise click.ClickException(f"topic {table.topic!r} has no key {missing[0]!r}")
    values = table.snapshot()
    return [_row(values, key) for key in (dict.fromkeys(keys) if keys else sorted(values))]


def _row(values: Snapshot, key: str) -> dict[str, Any]:
    import orjson

    from rmqclient.errors import BodyUnreadable

    try:
        stored = values.stored(key)
    except BodyUnreadable as error:
        return {"key": key, "value": None, "error": str(error)}
    try:
        return {"key": key, "value": orjson.loads(stored)}
    except orjson.JSONDecodeError:
        pass
    try:
        return {"key": key, "value": stored.decode()}
    except UnicodeDecodeError:
        return {"key": key, "value": None, "value_base64": base64.b64encode(stored).decode("ascii")}


def _printed(row: Mapping[str, Any]) -> str | None:
    """One cell for a person: text that cannot drive a terminal."""
    value = row["value"]
    if value is None:
        value = row.get("value_base64") or row.get("error")
    return None if value is None else status.printable((value if isinstance(value, str) else to_json(value)).encode())
