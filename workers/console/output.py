"""Data on standard output: a table for people; JSON, JSON lines, YAML or CSV for programs.

``--where`` chooses rows, ``--query`` shapes what is printed of them. Only data is written there; notes go to standard
error. A table has bold heads only on a terminal and only without ``NO_COLOR``; off a terminal it is as wide as its
content, so that nothing is cut off in a pipe.
"""

# ruff: noqa: PLC0415 - each format imports what it needs

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from rmqclient.workers.console.where import RowCondition

FORMATS = ("table", "json", "jsonl", "yaml", "csv")


_PLAIN_KEY = re.compile(r"(?!(?:yes|no|on|off|true|false|null|y|n)$)[A-Za-z_][A-Za-z0-9_]*", re.IGNORECASE)
"""What YAML takes for a text, whatever its version."""


class Output(NamedTuple):
    """How a person wants to see data: ``-o``, ``--query`` and ``--where``."""

    form: str
    """One of ``FORMATS``."""
    query: str | None = None
    """JMESPath."""
    where: str | None = None
    """A condition on rows, in SQL92."""

    @property
    def is_for_people(self) -> bool:
        """Whether a person reads it, so that another form than a table may suit."""
        return self.form == "table" and self.query is None

    def write(
        self,
        data: Any,
        *,
        rows: Sequence[Mapping[str, Any]] | None = None,
        line: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
        limit: int | None = None,
        nothing: str = "",
    ) -> bool:
        """Write data on standard output, as :meth:`text` makes it, and return whether there was any.

        Of a list, or of an iterator of rows, those are written for which the condition holds, until there are
        ``limit``. ``line`` makes of a row what a person sees of it in a table. ``nothing`` is a note on standard error,
        for a person who asked for a table that has no row. Raises as :meth:`text`, and ``click.BadParameter`` for a
        condition that is not SQL92.
        """
        condition = self._condition()
        data, rows = _first(data, condition, limit), _first(rows, condition, None)
        shown = data if rows is None else rows
        note = condition.note(is_for_people=self.is_for_people) if condition is not None else ""
        if self.is_for_people:
            note = note or ("" if shown else nothing)
            rows = rows if line is None else [line(each) for each in data]
        if note:
            click.echo(note, err=True)
        if text := self.text(data, rows=rows):
            click.echo(text)
        return bool(shown)

    def text(self, data: Any, *, rows: Sequence[Mapping[str, Any]] | None = None) -> str:
        """Return data as text without its last line end.

        ``rows`` is shown by the table and by CSV instead of ``data``, if given. Raises ``click.BadParameter`` for a
        query that is not JMESPath.
        """
        if self.query is not None:
            data, rows = apply_query(data, self.query), None
        shown = data if rows is None else rows
        match self.form:
            case "json":
                return to_json(data, indent=True)
            case "jsonl":
                return "\n".join(map(to_json, data if isinstance(data, list) else [data]))
            case "yaml":
                return "\n".join(_yaml(data))
            case "csv":
                return _csv(shown)
            case _:
                return _table(shown)

    def _condition(self) -> RowCondition | None:
        if self.where is None:
            return None
        from rmqclient.workers.console.where import RowCondition

        return RowCondition(self.where)


def _first(data: Any, condition: RowCondition | None, limit: int | None) -> Any:
    """Return the first rows for which a condition holds; what is no list or iterator of them, as it is."""
    if not isinstance(data, list | Iterator):
        return data
    return list(islice(data if condition is None else filter(condition.holds, data), limit))


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


def _csv(data: Any) -> str:
    """Return rows with a head; what is no row stands in a column ``value``. Lists and mappings are JSON in a cell."""
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
    return text.getvalue().removesuffix("\n")


def _table(data: Any) -> str:
    items = data if isinstance(data, list) else [data]
    if not items or not all(isinstance(item, Mapping) and item for item in items):
        return "\n".join(item if isinstance(item, str) else to_json(item) for item in items)
    from rmqclient.workers.console.layout import table
    from rmqclient.workers.console.terminal import columns, has_colours

    head, lines = table(items, columns())
    if has_colours():
        head = [click.style(each, bold=True) for each in head]
    return "\n".join([*head, *lines])
