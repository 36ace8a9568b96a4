"""``rmq message``, ``rmq send`` and ``rmq tail``: finding, sending and reading messages."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from rmqclient.workers.console import status
from rmqclient.workers.console.opening import opened_backend, opened_reader, opening
from rmqclient.workers.console.output import write
from rmqclient.workers.console.parameters import duration, moment, name_and_value, start, with_output, with_store
from rmqclient.workers.console.tree import Noun


@click.group(cls=Noun)
def message() -> None:
    """Find messages by id, by key and by time."""


@message.command("show")
@click.argument("message_id", metavar="ID")
@click.option("--topic", "topic_name", help="Look only there.  [default: every topic]")
@with_store
@with_output
def message_show(message_id: str, topic_name: str | None, root: Path | str, output: str, query: str | None) -> None:
    """Show the message with ID: the id that its sender got, or RocketMQ's offset message id."""
    with opened_backend(root) as backend:
        found = backend.message_by_id(message_id, topic_name)
        if found is None:
            raise click.ClickException(f"no message has the id {message_id}")
        if output == "table" and query is None:
            click.echo(status.message_line(found))
        else:
            write(status.message_row(found), output=output, query=query)


@message.command("find")
@click.argument("topic_name", metavar="TOPIC")
@click.argument("key", metavar="KEY")
@click.option("--since", type=moment, help="2h for two hours ago, or a time.  [default: the beginning of the store]")
@click.option("--until", type=moment, help="The same.  [default: now]")
@click.option("--limit", type=click.IntRange(min=1), default=64, show_default=True)
@with_store
@with_output
def message_find(
    topic_name: str,
    key: str,
    since: int | None,
    until: int | None,
    limit: int,
    root: Path | str,
    output: str,
    query: str | None,
) -> None:
    """Show the messages of TOPIC with KEY, the newest first."""
    with opened_reader(root) as reader:
        found = reader.find(topic_name, key, since_ms=since, until_ms=until, limit=limit)
    if output == "table" and query is None:
        for each in found:
            click.echo(status.message_line(each))
    else:
        write([status.message_row(each) for each in found], output=output, query=query)


@click.command()
@click.argument("topic_name", metavar="TOPIC")
@click.argument("body", required=False)
@click.option("--tags", help="Tag of the message.")
@click.option("--key", "keys", multiple=True, help="Key to find it by; may be repeated.")
@click.option("--sharding-key", help="Messages with the same sharding key keep their order.")
@click.option("--property", "properties", type=name_and_value, multiple=True, help="May be repeated.")
@click.option("--delay-level", type=click.IntRange(0, 18), default=0, help="1 to 18: 1s 5s 10s 30s 1m 2m ... 2h.")
@click.option("--compress", type=click.Choice(["lz4", "zstd", "zlib"]), help="Store it compressed, if that is smaller.")
@click.option("--delay", type=duration, help="Deliver it so much later: 30s, 500ms, 2h or 3d.")
@click.option("--count", type=click.IntRange(min=1), default=1, show_default=True, help="Send it so many times.")
@with_store
@with_output
def send(
    topic_name: str,
    body: str | None,
    tags: str | None,
    keys: tuple[str, ...],
    sharding_key: str | None,
    properties: tuple[tuple[str, str], ...],
    delay_level: int,
    compress: str | None,
    delay: float | None,
    count: int,
    root: Path | str,
    output: str,
    query: str | None,
) -> None:
    """Send BODY to TOPIC; without BODY, or with -, standard input. The store is made if it does not exist."""
    from rmqclient import Compression, Message, Producer
    from rmqclient.names import COMMAND_GROUP

    if delay_level and delay is not None:
        raise click.UsageError("give either --delay or --delay-level")
    compression = None if compress is None else Compression[compress.upper()]
    to_send = Message(topic_name, _body(body), tags=tags, keys=keys, properties=dict(properties))
    with opening(
        root, lambda: Producer(root, group=COMMAND_GROUP, compression=compression, compress_over_bytes=0)
    ) as producer:
        results = [producer.send(to_send, sharding_key, delay_level=delay_level, delay=delay) for _ in range(count)]
    write([status.sent_row(result) for result in results], output=output, query=query)


def _body(argument: str | None) -> bytes:
    if argument is not None and argument != "-":
        return os.fsencode(argument)  # the bytes of the command line, whatever their encoding
    if argument is None and sys.stdin.isatty():
        raise click.UsageError("no BODY: give it as an argument, or - to type it")
    return sys.stdin.buffer.read()


@click.command()
@click.argument("topic_name", metavar="TOPIC")
@click.option(
    "--from", "begin", type=start, default="latest", show_default=True, help="earliest, latest, -100, 2h or a time."
)
@click.option("--follow/--no-follow", default=True, show_default=True, help="Wait for more at the end.")
@with_store
@with_output
def tail(topic_name: str, begin: str | int, follow: bool, root: Path | str, output: str, query: str | None) -> None:
    """Print the messages of TOPIC, one per line. Takes part in no group and changes no offset."""
    if output == "json" and follow:
        raise click.UsageError("a JSON document has an end: use -o jsonl, or --no-follow")
    with opened_reader(root) as reader:
        messages = reader.tail(topic_name, start=begin, follow=follow)
        if output == "json":
            write([status.message_row(each) for each in messages], output=output, query=query)
            return
        for each in messages:
            if output == "table" and query is None:
                click.echo(status.message_line(each))
            else:
                write(status.message_row(each), output=output, query=query)
