"""``rmq tail``: messages of some topics as they stand in the log and as they come."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rmqclient.workers.console import status
from rmqclient.workers.console.opening import opened_backend
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import check_range, moment, start, with_output, with_store
from rmqclient.workers.console.where import condition

if TYPE_CHECKING:
    from rmqclient import ReceivedMessage
    from rmqclient.backend import Backend
    from rmqclient.filters import MessageFilter

_FORMAT = re.compile(r"%(?:\{(\w+)\}|(.))")
_WHOLE = {"json": "a JSON document", "yaml": "a YAML document", "csv": "a CSV file"}
"""Forms that are written as a whole, behind the last message."""
_LETTERS = {
    "t": "topic",
    "p": "queue_id",
    "o": "queue_offset",
    "i": "message_id",
    "T": "store_timestamp",
    "k": "keys",
    "g": "tags",
    "s": "sharding_key",
    "b": "body",
}


@click.command()
@click.argument("topic_names", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "--from", "begin", type=start, default="latest", show_default=True, help="earliest, latest, -100, 2h or a time."
)
@click.option(
    "--until", type=moment, help="Only messages stored before, and end then: 2h for two hours ago, or a time."
)
@click.option("--follow/--no-follow", default=True, show_default=True, help="Wait for more at the end.")
@click.option("-n", "--limit", type=click.IntRange(min=1), help="End after N messages.")
@click.option("--queue", "queue_id", type=click.IntRange(min=0), help="Only this queue.")
@click.option("--tags", default="*", help="Only these tags: paid || refunded.")
@click.option("--where", help="Only messages for which this SQL92 holds: \"region = 'eu' AND total > 100\".")
@click.option("--json", "expression", help="Only messages for whose JSON body this JMESPath holds.")
@click.option(
    "--format",
    "form",
    help="%t topic, %p queue, %o offset, %i id, %T time in ms, %k keys, %g tags, %s sharding key, %b body, "
    "%{name} property, %% percent; \\n and \\t.",
)
@with_store
@with_output
def tail(
    topic_names: tuple[str, ...],
    begin: str | int,
    until: int | None,
    follow: bool,
    limit: int | None,
    queue_id: int | None,
    tags: str,
    where: str | None,
    expression: str | None,
    form: str | None,
    root: Path | str,
    out: Output,
) -> None:
    """Print the messages of each TOPIC, one per line. Joins no group and changes no offset.

    TOPIC may be a regular expression between slashes, such as /orders-.*/, which stands for the topics that exist now.
    """
    if out.form in _WHOLE and follow and limit is None and until is None:
        raise click.UsageError(f"{_WHOLE[out.form]} has an end: use -o jsonl, --limit, or --no-follow")
    given = {name for name in ("form", "output", "query") if _is_given(name)}
    if "form" in given and len(given) > 1:
        raise click.UsageError("give either --format, or -o and --query")
    if not isinstance(begin, str):
        check_range(begin, until, "--from and --until")
    wanted = _wanted(tags, expression)
    holds = condition(where)
    with opened_backend(root) as backend:
        from rmqclient.consuming.reader import Reader

        topics = _topics(backend, topic_names)
        _check_queue(backend, topics, queue_id)
        found: Iterable[ReceivedMessage] = Reader(backend).tail(*topics, start=begin, follow=follow, until_ms=until)
        found = (each for each in found if queue_id in (None, each.queue_id) and wanted.matches(each) and holds(each))
        _print(islice(found, limit), len(topics) > 1, form, out)


def _is_given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _print(messages: Iterable[ReceivedMessage], several: bool, form: str | None, out: Output) -> None:
    if out.form in _WHOLE:
        out.write([status.message_row(each) for each in messages])
        return
    for each in messages:
        if form is not None:
            click.echo(formatted(form, status.message_row(each)), nl=False)
        elif out.is_for_people:
            click.echo(f"{each.topic} {status.message_line(each)}" if several else status.message_line(each))
        else:
            out.write(status.message_row(each))


def formatted(form: str, row: Any) -> str:
    """Return a message by a format; what it lacks is empty. Raises ``click.BadParameter`` for another letter."""

    def replaced(found: re.Match[str]) -> str:
        if found[1] is not None:
            return str(row["properties"].get(found[1], ""))
        if found[2] == "%":
            return "%"
        if found[2] not in _LETTERS:
            raise click.BadParameter(f"%{found[2]}: write one of {' '.join(f'%{each}' for each in _LETTERS)} or %%")
        value = row[_LETTERS[found[2]]]
        text = " ".join(value) if isinstance(value, list) else "" if value is None else str(value)
        return text if found[2] != "b" or value is not None else row.get("body_base64", "")

    return _FORMAT.sub(replaced, form.replace("\\n", "\n").replace("\\t", "\t"))


def _wanted(tags: str, expression: str | None) -> MessageFilter:
    from rmqclient.errors import FilterError
    from rmqclient.filters import MessageFilter, jmespath

    try:
        return MessageFilter(tags, [jmespath(expression)] if expression is not None else [])
    except (FilterError, ValueError) as error:
        raise click.UsageError(str(error)) from error


def _topics(backend: Backend, names: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for name in names:
        if not (name.startswith("/") and name.endswith("/") and len(name) > 1):
            found[name] = None
            continue
        try:
            matching = [each for each in backend.topics.names() if re.fullmatch(name[1:-1], each)]
        except re.error as error:
            raise click.BadParameter(f"{name}: {error}") from error
        if not matching:
            raise click.ClickException(f"no topic matches {name}")
        found.update(dict.fromkeys(matching))
    return list(found)


def _check_queue(backend: Backend, topics: list[str], queue_id: int | None) -> None:
    """Raise ``click.BadParameter`` for a queue that no topic has, and UnknownTopic."""
    known = {queue.queue_id for topic in topics for queue in backend.topics.queues(topic)}
    if queue_id is not None and queue_id not in known:
        raise click.BadParameter(f"{queue_id}: {', '.join(topics)} has queues 0 to {max(known)}", param_hint="--queue")
