"""Data on standard output: a table for people; JSON, JSON lines, YAML or CSV for programs; after an optional JMESPath.

Only data is written there; notes go to standard error. A table has colours only on a terminal and only without
``NO_COLOR``; off a terminal it is as wide as its content, so that nothing is cut off in a pipe.
"""

# ruff: noqa: PLC0415 - each format imports what it needs: rich alone takes longer than most commands

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

FORMATS = ("table", "json", "jsonl", "yaml", "csv")


_PLAIN_KEY = re.compile(r"(?!(?:yes|no|on|off|true|false|null|y|n)$)[A-Za-z_][A-Za-z0-9_]*", re.IGNORECASE)
"""What YAML takes for a text, whatever its version."""


class Output(NamedTuple):
    """How a person wants to see data: ``-o`` and ``--query``."""

    form: str
    """One of ``FORMATS``."""
    query: str | None = None
    """JMESPath."""

    @property
    def is_for_people(self) -> bool:
        """Whether a person reads it, so that another form than a table may suit."""
        return self.form == "table" and self.query is None

    def write(self, data: Any, *, rows: Sequence[Mapping[str, Any]] | None = None, nothing: str = "") -> None:
        """Write data on standard output.

        ``rows`` is shown by the table and by CSV instead of ``data``, if given. ``nothing`` is a note on standard
        error, for a person who asked for a table that has no row. Raises ``click.BadParameter`` for a query that is not
        JMESPath.
        """
        if self.query is not None:
            data, rows = apply_query(data, self.query), None
        if self.form == "json":
            click.echo(to_json(data, indent=True))
        elif self.form == "jsonl":
            for item in data if isinstance(data, list) else [data]:
                click.echo(to_json(item))
        elif self.form == "yaml":
            click.echo("\n".join(_yaml(data)))
        elif self.form == "csv":
            _write_csv(data if rows is None else rows)
        else:
            if nothing and self.is_for_people and not (data if rows is None else rows):
                click.echo(nothing, err=True)
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
    """JSON text, keys in the order of the row. A half of a surrogate pair, as file names have, is escaped."""
    import orjson

    try:
        return orjson.dumps(data, option=orjson.OPT_INDENT_2 if indent else 0).decode("utf-8")
    except orjson.JSONEncodeError:
        import json

        return json.dumps(data, indent=2 if indent else None)


def _yaml(data: Any) -> list[str]:
    """The lines of a YAML document. Scalars are written as JSON, which YAML 1.2 contains, so nothing needs a rule."""
    if isinstance(data, Mapping) and data:
        return [line for name, value in data.items() for line in _yaml_of(f"{_yaml_key(name)}:", value)]
    if isinstance(data, list) and data:
        return [line for value in data for line in _yaml_item(value)]
    return [to_json(data)]


def _yaml_of(head: str, value: Any) -> list[str]:
    lines = _yaml(value)
    if isinstance(value, Mapping | list) and value:
        return [head, *(f"  {line}" for line in lines)]
    return [f"{head} {lines[0]}"]


def _yaml_item(value: Any) -> list[str]:
    first, *others = _yaml(value)
    return [f"- {first}", *(f"  {line}" for line in others)]


def _yaml_key(name: object) -> str:
    text = str(name)
    return text if _PLAIN_KEY.fullmatch(text) else to_json(text)


def _write_csv(data: Any) -> None:
    """Write rows with a head; what is no row stands in a column ``value``. Lists and mappings are JSON in a cell."""
    import csv
    import io

    items = data if isinstance(data, list) else [data]
    rows = [item if isinstance(item, Mapping) else {"value": item} for item in items]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if names:
        writer.writerow(names)
    for row in rows:
        values = (row.get(name) for name in names)
        writer.writerow(
            ["" if value is None else value if isinstance(value, str) else to_json(value) for value in values]
        )
    click.echo(text.getvalue(), nl=False)


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
