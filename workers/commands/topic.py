"""``rmq topic``: topics, their queues, and making them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from rmqclient.workers.commands.table import topic_table
from rmqclient.workers.console import status
from rmqclient.workers.console.asking import confirm, with_yes
from rmqclient.workers.console.opening import opened_admin
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import with_output, with_rows, with_store
from rmqclient.workers.console.tree import Noun
from rmqclient.workers.console.watching import with_watch

if TYPE_CHECKING:
    from rmqclient.admin import TopicInfo


@click.group(cls=Noun)
def topic() -> None:
    """List, describe, create, change and remove topics."""


@topic.command("ls")
@with_store
@with_rows
@with_watch
def topic_ls(root: Path | str, out: Output) -> None:
    """List all topics with their numbers of queues and messages."""
    with opened_admin(root) as admin:
        rows = [status.topic_row(info) for info in admin.topics()]
    out.write(rows, nothing="no topics yet: a topic is made by its first message")


@topic.command("info")
@click.argument("topic_name", metavar="TOPIC")
@with_store
@with_output
def topic_info(topic_name: str, root: Path | str, out: Output) -> None:
    """Show the queues of TOPIC and their offsets."""
    with opened_admin(root) as admin:
        info = admin.topic(topic_name)
        out.write(status.topic_detail(info), rows=status.queue_rows(info))


@topic.command("create")
@click.argument("topic_names", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--queues", type=click.IntRange(min=1), help="Queues of each new topic.  [default: 4]")
@click.option(
    "--cleanup-policy",
    type=click.Choice(["delete", "compact"]),
    help="compact keeps the latest message of each key.  [default: delete]",
)
@with_store
@with_output
def topic_create(
    topic_names: tuple[str, ...], queues: int | None, cleanup_policy: str | None, root: Path | str, out: Output
) -> None:
    """Create each TOPIC, and the store if it does not exist. An existing topic is not changed."""
    with opened_admin(root, create=True) as admin:
        made = [admin.create_topic(name, queues or 4, cleanup_policy) for name in topic_names]
    details = [status.topic_detail(info) for info in made]
    rows = status.queue_rows(made[0]) if len(made) == 1 else [status.topic_row(info) for info in made]
    out.write(details[0] if len(made) == 1 else details, rows=rows)
    for info in made:
        _check_count(info, queues)


def _check_count(info: TopicInfo, wanted: int | None) -> None:
    """Raise ClickException if a topic that was there has another number of queues; on a cluster, at a master."""
    for broker, have in Counter(queue.broker_name for queue in info.queues).items():
        if wanted not in (None, have):
            advice = (
                f"{broker} keeps it, and `mqadmin updateTopic` changes it"
                if broker
                else f"`rmq topic update {info.topic} --queues {wanted}` adds queues"
            )
            raise click.ClickException(f"{info.topic} was there, with {have} queues: {advice}")


@topic.command("update")
@click.argument("topic_name", metavar="TOPIC")
@click.option("--queues", type=click.IntRange(min=1), help="New number of queues, not fewer than now.")
@click.option("--write-queues", type=click.IntRange(min=1), help="New messages go to the first N queues.")
@click.option("--read-queues", type=click.IntRange(min=1), help="Consumers read the first N queues.")
@click.option(
    "--perm",
    type=click.Choice(["rw", "r", "w", "none"]),
    help="r: read only; w: write only.",
)
@with_store
@with_output
def topic_update(
    topic_name: str,
    queues: int | None,
    write_queues: int | None,
    read_queues: int | None,
    perm: Literal["rw", "r", "w", "none"] | None,
    root: Path | str,
    out: Output,
) -> None:
    """Change how many queues of TOPIC are written and read. Running producers and consumers follow at once.

    Messages with a sharding key go to another queue from then on: let groups catch up first. To remove queues, lower
    --write-queues, wait until groups have handled the messages in the others, then lower --read-queues.
    """
    if (queues, write_queues, read_queues, perm) == (None,) * 4:
        raise click.UsageError("say what to change: --queues, --write-queues, --read-queues or --perm")
    with opened_admin(root) as admin:
        try:
            info = admin.update_topic(topic_name, queues, write_queues=write_queues, read_queues=read_queues, perm=perm)
        except ValueError as error:
            raise click.ClickException(str(error)) from error
    out.write(status.topic_detail(info), rows=status.queue_rows(info))


@topic.command("rm")
@click.argument("topic_name", metavar="TOPIC")
@with_yes
@with_store
def topic_rm(topic_name: str, yes: bool, root: Path | str) -> None:
    """Remove TOPIC. Its messages stay in the log until retention removes them.

    A send or a handler creates the topic again, with the queues and offsets that it had. Its old messages stay hidden,
    and are handled by no group.
    """
    with opened_admin(root) as admin:
        info = admin.topic(topic_name)
        confirm(f"forget {topic_name} with {info.messages:,} messages?", yes=yes)
        admin.remove_topic(topic_name)
    click.echo(f"{topic_name}: forgotten, with {info.messages:,} messages", err=True)


topic.add_command(topic_table)
