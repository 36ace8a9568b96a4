"""Data on standard output: a table for people, JSON or JSON lines for programs, after an optional JMESPath query.

Only data is written there; notes go to standard error. A table has colours only on a terminal and only without
``NO_COLOR``; off a terminal it is as wide as its content, so that nothing is cut off in a pipe.
"""

# ruff: noqa: PLC0415 - each format imports what it needs: rich alone takes longer than most commands

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

FORMATS = ("table", "json", "jsonl")


def write(data: Any, *, output: str, query: str | None = None, rows: Sequence[Mapping[str, Any]] | None = None) -> None:
    """Write ``data`` in one of ``FORMATS``.

    ``rows`` is shown by the table instead of ``data``, if given. Raises ``click.BadParameter`` for a query
    that is not JMESPath.
    """
    if query is not None:
        data, rows = apply_query(data, query), None
    if output == "json":
        click.echo(to_json(data, indent=True))
    elif output == "jsonl":
        for item in data if isinstance(data, list) else [data]:
            click.echo(to_json(item))
    else:
        _write_table(data if rows is None else rows)


def apply_query(data: Any, query: str) -> Any:
    """Return what a JMESPath expression selects from ``data``; None if it selects nothing.

    Raises ``click.BadParameter`` for an invalid expression.
    """
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        return jmespath.search(query, data)
    except JMESPathError as error:
        reason = " ".join(str(error).split())
        raise click.BadParameter(f"{query!r} is not JMESPath: {reason}", param_hint="--query") from error


def to_json(data: Any, *, indent: bool = False) -> str:
    """JSON text, keys in the order of the row."""
    import orjson

    return orjson.dumps(data, option=orjson.OPT_INDENT_2 if indent else 0).decode("utf-8")


def _write_table(data: Any) -> None:
    items = data if isinstance(data, list) else [data]
    if items and all(isinstance(item, Mapping) for item in items):
        _write_columns(items)
        return
    for item in items:
        click.echo(item if isinstance(item, str) else to_json(item))


def _write_columns(rows: Sequence[Mapping[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.width = 10_000
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in rows[0]:
        numeric = all(isinstance(row.get(name), int | float | None) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in rows[0]))
    with console.capture() as capture:
        console.print(table)
    # Rich pads every line to the full width of the table.
    for line in capture.get().splitlines():
        click.echo(line.rstrip())


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return to_json(value)
