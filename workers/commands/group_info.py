"""``rmq group info``: who consumes in a group, and which messages they ask for."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

from pathlib import Path

import click

from rmqclient.workers.console.opening import opening
from rmqclient.workers.console.output import write
from rmqclient.workers.console.parameters import with_output, with_store


@click.command("info")
@click.argument("group_name", metavar="GROUP")
@with_store
@with_output
def group_info(group_name: str, root: Path, output: str, query: str | None) -> None:
    """The topics of GROUP: what its members subscribe to, tags, filters and all, and how far they are.

    Members that subscribe to different messages of one topic stand on lines of their own.
    """
    from rmqclient import admin
    from rmqclient.admin.subscriptions import subscriptions_of

    with opening(root, lambda: admin.open_store(root, create=False)) as store:
        found = subscriptions_of(store, group_name)
    rows = [
        {
            "topic": each.topic,
            "subscription": each.subscription,
            "members": list(each.members),
            "queues": each.queues,
            "lag": each.lag,
        }
        for each in found
    ]
    if not rows and output == "table":
        click.echo(f"group {group_name} has no members and never consumed", err=True)
    write(rows, output=output, query=query)
