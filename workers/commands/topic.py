"""``rmq topic``: topics, their queues, and making them."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

from pathlib import Path

import click

from rmqclient.workers.commands.table import topic_table
from rmqclient.workers.console import status
from rmqclient.workers.console.opening import opening
from rmqclient.workers.console.output import write
from rmqclient.workers.console.parameters import with_output, with_store


@click.group()
def topic() -> None:
    """List, describe and make topics."""


@topic.command("ls")
@with_store
@with_output
def topic_ls(root: Path | str, output: str, query: str | None) -> None:
    """List all topics with their numbers of queues and messages."""
    from rmqclient.admin import Admin

    with opening(root, lambda: Admin(root)) as admin:
        write([status.topic_row(info) for info in admin.topics()], output=output, query=query)


@topic.command("info")
@click.argument("topic_name", metavar="TOPIC")
@with_store
@with_output
def topic_info(topic_name: str, root: Path | str, output: str, query: str | None) -> None:
    """Show the queues of TOPIC and their offsets."""
    from rmqclient.admin import Admin

    with opening(root, lambda: Admin(root)) as admin:
        info = admin.topic(topic_name)
        write(status.topic_detail(info), output=output, query=query, rows=status.queue_rows(info))


@topic.command("create")
@click.argument("topic_name", metavar="TOPIC")
@click.option("--queues", type=click.IntRange(min=1), default=4, show_default=True)
@click.option(
    "--cleanup-policy",
    type=click.Choice(["delete", "compact"]),
    help="compact keeps the latest message of each key.  [default: delete]",
)
@with_store
@with_output
def topic_create(
    topic_name: str, queues: int, cleanup_policy: str | None, root: Path | str, output: str, query: str | None
) -> None:
    """Make TOPIC. The store is made, too, if it does not exist."""
    from rmqclient.admin import Admin

    with opening(root, lambda: Admin(root, create=True)) as admin:
        info = admin.create_topic(topic_name, queues, cleanup_policy)
        write(status.topic_detail(info), output=output, query=query, rows=status.queue_rows(info))


topic.add_command(topic_table)
