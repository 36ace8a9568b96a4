"""``rmq message``: one message by its id, its key or its place, and its life."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqclient.workers.console import layout, status
from rmqclient.workers.console.opening import opened_backend, opened_reader
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import check_range, moment, with_output, with_store
from rmqclient.workers.console.tree import Noun
from rmqclient.workers.console.where import condition

if TYPE_CHECKING:
    from rmqclient import ReceivedMessage
    from rmqclient.backend import Backend


@click.group(cls=Noun)
def message() -> None:
    """Find messages by id, key, position and time, and show the history of one."""


_PLACE = re.compile(r"(\d{1,9}):(\d{1,19})")
_with_topic = click.option("--topic", "topic_name", help="Look only there.  [default: every topic]")


@message.command("get")
@click.argument("message_id", metavar="ID|QUEUE:OFFSET")
@_with_topic
@with_store
@with_output
def message_get(message_id: str, topic_name: str | None, root: Path | str, out: Output) -> None:
    """Show the message with ID, as its sender got it, or RocketMQ's offset message id; or the one at QUEUE:OFFSET.

    A position such as 2:7731 needs --topic.
    """
    with opened_backend(root) as backend:
        found = _found(backend, message_id, topic_name)
    if out.is_for_people:
        click.echo("\n".join(status.message_page(found)))
    else:
        out.write(status.message_row(found))


@message.command("trace")
@click.argument("message_id", metavar="ID|QUEUE:OFFSET")
@_with_topic
@with_store
@with_output
def message_trace(message_id: str, topic_name: str | None, root: Path | str, out: Output) -> None:
    """Show the history of a message: sent, stored, failures, retries and dead letters, and the progress of groups."""
    from rmqclient.admin.life import life_of

    with opened_backend(root) as backend:
        steps = life_of(backend, _found(backend, message_id, topic_name))
    rows: list[dict[str, Any]] = [
        {
            "time": None if step.at_ms is None else layout.local_time(step.at_ms),
            "event": step.event,
            "place": step.place,
            "detail": status.printable(step.detail.encode()),
        }
        for step in steps
    ]
    out.write(rows)


@message.command("signal")
@click.argument("message_id", metavar="ID")
@click.argument("name", metavar="NAME")
@click.argument("payload", metavar="JSON", required=False, default="null")
@click.option("--group", required=True, help="Group of the handler that waits, or will wait.")
@with_store
def message_signal(message_id: str, name: str, payload: str, group: str, root: Path | str) -> None:
    """Send the message with ID the signal that its handler waits for with step.wait_for(NAME), now or later.

    wait_for() returns JSON there, null without it; a text needs its quotes: '"yes"'.
    """
    from rmqclient.steps.journal import signal

    try:
        value = json.loads(payload)
    except ValueError as error:
        raise click.BadParameter(f"{payload!r} is not JSON ({error}); a text needs its quotes: '\"yes\"'") from error
    with opened_backend(root) as backend:
        was_waiting = signal(backend, group, message_id, name, value)
    click.echo("stored; the message was waiting and goes on" if was_waiting else "stored; nobody waits for it yet")


@message.command("decode")
@click.argument("message_id", metavar="ID")
@with_output
def message_decode(message_id: str, out: Output) -> None:
    """Decode ID without a store: process and address of the sender, or broker and position in its log.

    Both kinds of ids have 32 digits, so both readings are shown; use the one that fits where the id came from.
    """
    from rmqclient.admin.ids import readings

    try:
        rows = readings(message_id)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    out.write(rows)


def _found(backend: Backend, message_id: str, topic_name: str | None) -> ReceivedMessage:
    from rmqclient.errors import MessageExpired

    place = _PLACE.fullmatch(message_id)
    if place is None:
        found = backend.messages.by_id(message_id, topic_name)
        if found is None:
            raise click.ClickException(f"no message has the id {message_id}")
        return found
    if topic_name is None:
        raise click.UsageError(f"{message_id} is a place in a queue: say of which --topic")
    queues = [queue for queue in backend.topics.queues(topic_name) if queue.queue_id == int(place[1])]
    span = backend.queues.span(queues[0]) if queues else (0, 0)
    if not span[0] <= int(place[2]) < span[1]:
        raise click.ClickException(
            f"no message stands at {message_id} of {topic_name}: the queue has {span[0]} to {span[1] - 1}"
            if queues
            else f"{topic_name} has no queue {place[1]}"
        )
    try:
        return backend.queues.message_at(queues[0], int(place[2]))
    except MessageExpired as error:
        raise click.ClickException(str(error)) from error


@message.command("find")
@click.argument("topic_name", metavar="TOPIC")
@click.argument("key", metavar="KEY")
@click.option("--since", type=moment, help="2h for two hours ago, or a time.  [default: the beginning of the store]")
@click.option("--until", type=moment, help="The same.  [default: now]")
@click.option("--where", help="Only messages for which this SQL92 holds: \"region = 'eu' AND total > 100\".")
@click.option("--limit", type=click.IntRange(min=1), default=64, show_default=True)
@with_store
@with_output
def message_find(
    topic_name: str,
    key: str,
    since: int | None,
    until: int | None,
    where: str | None,
    limit: int,
    root: Path | str,
    out: Output,
) -> None:
    """Show the messages of TOPIC with KEY, the newest first."""
    check_range(since, until)
    holds = condition(where)
    key.encode()  # raises UnicodeEncodeError, also where no message is looked at
    with opened_reader(root) as reader:
        found = _chosen(
            holds, limit, lambda most: reader.find(topic_name, key, since_ms=since, until_ms=until, limit=most)
        )
    if out.is_for_people:
        for each in found:
            click.echo(status.message_line(each))
    else:
        out.write([status.message_row(each) for each in found])
    if not found:
        condition_of_it = "" if where is None else f", for which this holds: {where}"
        raise click.ClickException(f"no message of {topic_name} has the key {key} in that time{condition_of_it}")


def _chosen(
    holds: Callable[[ReceivedMessage], bool], limit: int, found: Callable[[int], list[ReceivedMessage]]
) -> list[ReceivedMessage]:
    """Return the first messages that hold; ``found`` returns at most so many, and is asked for more until it ends."""
    most = limit
    while True:
        every = found(most)
        chosen = [*islice(filter(holds, every), limit)]
        if len(chosen) == limit or len(every) < most:
            return chosen
        most *= 4
