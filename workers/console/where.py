"""``--where``: one language of conditions for all rows and messages, SQL92 as a broker of RocketMQ reads it.

Names are the fields of a row as ``-o json`` prints them, and of a message also its properties, which are stronger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rmqclient import ReceivedMessage
    from rmqclient.filters.sql92 import Sql92

_OF_MESSAGES = (
    "topic",
    "queue_id",
    "queue_offset",
    "message_id",
    "tags",
    "keys",
    "sharding_key",
    "born_timestamp",
    "store_timestamp",
)
_LENGTHS_OF_TIME = ("_ms", "_s", "seconds_left")
"""How their names end."""


def compiled(where: str) -> Sql92:
    """Return a condition. Raises ``click.BadParameter``, which names the column, for one that is not SQL92."""
    from rmqclient.errors import FilterError  # noqa: PLC0415 - imported when there is a condition
    from rmqclient.filters import sql  # noqa: PLC0415 - as above

    try:
        return sql(where)
    except FilterError as error:
        raise click.BadParameter(str(error), param_hint="--where") from error


def condition(where: str | None) -> Callable[[ReceivedMessage], bool]:
    """Return what tells of a message whether the condition holds; without one it always does. Raises as `compiled`."""
    if where is None:
        return lambda _: True
    made = compiled(where)

    def holds(message: ReceivedMessage) -> bool:
        fields = {name: getattr(message, name) for name in _OF_MESSAGES}
        return made.matches({**as_properties(fields), **message.some_properties(made.names)})

    return holds


class RowCondition:
    """A condition on rows. It remembers what it met, to say why nothing was chosen."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._made = compiled(where)
        self._columns: dict[str, None] = {}
        self._has_chosen = False

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Tell whether the condition holds for a row."""
        self._columns.update(dict.fromkeys(row))
        is_chosen = self._made.matches(as_properties(row))
        self._has_chosen |= is_chosen
        return is_chosen

    def note(self, *, is_for_people: bool) -> str:
        """Return a column that no row has, and for a person that no row was chosen; empty if there were no rows."""
        missing = [name for name in map(bytes.decode, self._made.names) if name not in self._columns]
        if self._columns and missing:
            return f"no row has {', '.join(missing)}; the columns are {', '.join(self._columns)}"
        if self._columns and is_for_people and not self._has_chosen:
            return f"no row for which this holds: {self._where}"
        return ""


def as_properties(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of a row as a filter reads the properties of a message: as texts, without those of no value.

    Lengths of time are whole milliseconds or seconds, because SQL92 compares a whole number with nothing else.
    """
    return {name: _as_property(name, value) for name, value in row.items() if value is not None}


def _as_property(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and (name.endswith(_LENGTHS_OF_TIME) or value.is_integer()):
        return str(round(value))
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value)
