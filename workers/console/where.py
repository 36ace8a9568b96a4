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


def as_properties(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of a row as a filter reads the properties of a message: as texts, without those of no value.

    Durations are whole milliseconds, because SQL92 compares a whole number with nothing else.
    """
    return {name: _as_property(name, value) for name, value in row.items() if value is not None}


def _as_property(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and (name.endswith("_ms") or value.is_integer()):
        return str(round(value))
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return str(value)
