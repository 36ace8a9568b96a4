"""``rmq group``: where groups stand, who has which queue, and moving, pausing and resuming groups."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqclient.workers.console import status
from rmqclient.workers.console.opening import opening
from rmqclient.workers.console.output import write
from rmqclient.workers.console.parameters import position, with_output, with_store

if TYPE_CHECKING:
    from rmqclient.admin import MemberAssignment, QueueLag

_PICTURE_CHARACTERS = 64

Command = TypeVar("Command", bound=Callable[..., Any])


def _with_queue(command: Command) -> Command:
    return click.option("--queue", "queue_id", type=click.IntRange(min=0), help="Only this queue.  [default: all]")(
        command
    )


@click.group()
def group() -> None:
    """List groups, see how far they are behind, and move, pause and resume them."""


@group.command("ls")
@with_store
@with_output
def group_ls(root: Path | str, output: str, query: str | None) -> None:
    """All groups with their topics, members and lag."""
    from rmqclient.admin import Admin

    with opening(root, lambda: Admin(root)) as admin:
        write([status.group_row(info) for info in admin.groups()], output=output, query=query)


@group.command("lag")
@click.argument("group_name", metavar="GROUP")
@with_store
@with_output
def group_lag(group_name: str, root: Path | str, output: str, query: str | None) -> None:
    """Offsets, lag, owner and state of every queue of GROUP; of a broadcast group, for each member that it ever had.

    A state is running, paused, no owner, or the reason why the owner takes nothing now, such as "flow control: span".
    """
    from rmqclient.admin import Admin

    with opening(root, lambda: Admin(root)) as admin:
        write([status.lag_row(lag) for lag in admin.lag(group_name)], output=output, query=query)


@group.command("info")
@click.argument("group_name", metavar="GROUP")
@with_store
@with_output
def group_info(group_name: str, root: Path | str, output: str, query: str | None) -> None:
    """Show the topics of GROUP: the subscriptions of its members, with tags and filters, and how far they are.

    Members that subscribe to different messages of one topic stand on lines of their own.
    """
    from rmqclient.admin import Admin

    with opening(root, lambda: Admin(root)) as admin:
        found = admin.subscriptions(group_name)
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


@group.command("assignment")
@click.argument("group_name", metavar="GROUP")
@with_store
@with_output
def group_assignment(group_name: str, root: Path | str, output: str, query: str | None) -> None:
    """Show the queues of each member of GROUP, a line for each member.

    A spare has no queue. Queues without an owner stand in a line of their own.
    """
    from rmqclient.admin import Admin

    with opening(root, lambda: Admin(root)) as admin:
        found = admin.assignment(group_name)
    rows = [_row(each) for each in found]
    write(rows, output=output, query=query, rows=[_line(each, found) for each in found])


@group.command("seek")
@click.argument("group_name", metavar="GROUP")
@click.argument("topic_name", metavar="TOPIC")
@click.option(
    "--to", type=position, required=True, help="earliest, latest, a queue offset, 2h ago, or 2026-11-20T10:00Z."
)
@_with_queue
@click.option("--dry-run", is_flag=True, help="Only print the new positions.")
@with_store
@with_output
def group_seek(
    group_name: str,
    topic_name: str,
    to: str | int | datetime.datetime,
    queue_id: int | None,
    dry_run: bool,
    root: Path | str,
    output: str,
    query: str | None,
) -> None:
    """Move GROUP to another place in the queues of TOPIC, to deliver messages again or to skip some.

    Workers may go on: they lose the queues and take them again at the new place. Messages that were in flight can be
    delivered again if they stand after the new place.
    """
    from rmqclient.admin import Admin

    with opening(root, lambda: Admin(root)) as admin:
        moved = admin.seek(group_name, topic_name, to, queue_id=queue_id, dry_run=dry_run)  # type: ignore[arg-type]
        write([status.seek_row(info) for info in moved], output=output, query=query)


@group.command("pause")
@click.argument("group_name", metavar="GROUP")
@click.argument("topic_name", metavar="TOPIC", required=False)
@_with_queue
@with_store
@with_output
def group_pause(
    group_name: str, topic_name: str | None, queue_id: int | None, root: Path | str, output: str, query: str | None
) -> None:
    """Stop GROUP from taking messages, of TOPIC or of every topic that it ever consumed, until it is resumed."""
    from rmqclient.admin import Admin

    _set_paused(Admin.pause, group_name, topic_name, queue_id, root, output, query)


@group.command("resume")
@click.argument("group_name", metavar="GROUP")
@click.argument("topic_name", metavar="TOPIC", required=False)
@_with_queue
@with_store
@with_output
def group_resume(
    group_name: str, topic_name: str | None, queue_id: int | None, root: Path | str, output: str, query: str | None
) -> None:
    """Let GROUP take messages again."""
    from rmqclient.admin import Admin

    _set_paused(Admin.resume, group_name, topic_name, queue_id, root, output, query)


def _set_paused(
    change: Callable[..., list[QueueLag]],
    group_name: str,
    topic_name: str | None,
    queue_id: int | None,
    root: Path | str,
    output: str,
    query: str | None,
) -> None:
    from rmqclient.admin import Admin

    if queue_id is not None and topic_name is None:
        raise click.UsageError("--queue belongs to a topic: name TOPIC, too")

    with opening(root, lambda: Admin(root)) as admin:
        changed = change(admin, group_name, topic_name, queue_id=queue_id)
        write([status.lag_row(lag) for lag in changed], output=output, query=query)


def _row(assigned: MemberAssignment) -> dict[str, Any]:
    return {
        "group": assigned.group,
        "topic": assigned.topic,
        **({"broker": assigned.broker_name} if assigned.broker_name else {}),
        "client_id": assigned.client_id,
        "pid": assigned.pid,
        "heartbeat_age_ms": None if assigned.heartbeat_age_ms is None else round(assigned.heartbeat_age_ms, 1),
        "subscription": assigned.subscription,
        "queue_ids": list(assigned.queue_ids),
    }


def _line(assigned: MemberAssignment, everybody: Sequence[MemberAssignment]) -> dict[str, Any]:
    """One line of the table, with a picture in which every queue of the topic has a place."""
    shown = {"broker": assigned.broker_name} if any(each.broker_name for each in everybody) else {}
    owned = [
        queue_id
        for each in everybody
        if (each.topic, each.broker_name) == (assigned.topic, assigned.broker_name)
        for queue_id in each.queue_ids
    ]
    return {
        "topic": assigned.topic,
        **shown,
        "member": assigned.client_id or "(nobody)",
        "pid": assigned.pid,
        "queues": len(assigned.queue_ids),
        "queue_ids": ranges(assigned.queue_ids) or "spare",
        "picture": picture(assigned.queue_ids, max(owned, default=-1) + 1),
    }


def ranges(numbers: Sequence[int]) -> str:
    """Write ascending numbers as ``0-3, 7``."""
    runs = [
        [number for _, number in run]
        for _, run in groupby(enumerate(numbers), key=lambda placed: placed[1] - placed[0])
    ]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def picture(queue_ids: Sequence[int], count: int) -> str:
    """Draw a place for each of ``count`` queues, or for several of them when there are more than 64."""
    places = min(count, _PICTURE_CHARACTERS)
    filled = {queue_id * places // count for queue_id in queue_ids}
    return "".join("█" if place in filled else "·" for place in range(places))
