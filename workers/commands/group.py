"""``rmq group``: progress of groups, owners of queues, and moving, pausing and resuming groups."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click

from rmqclient.workers.console import status
from rmqclient.workers.console.asking import confirm, unknown, with_yes
from rmqclient.workers.console.opening import opened_admin
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import moment, position, refuse, with_output, with_rows, with_store
from rmqclient.workers.console.tree import Noun
from rmqclient.workers.console.watching import with_watch

if TYPE_CHECKING:
    from rmqclient.admin import Admin, MemberAssignment, QueueLag, SeekInfo

_PICTURE_CHARACTERS = 64


_with_queue = click.option("--queue", "queue_id", type=click.IntRange(min=0), help="Only this queue.  [default: all]")


@click.group(cls=Noun)
def group() -> None:
    """List groups and their lag, and move, pause and resume them."""


@group.command("ls")
@with_store
@with_rows
@with_watch
@click.option("--since", type=moment, help="What each did since 2h ago, 14:05, or 2026-11-20T10:00Z, by the history.")
def group_ls(root: Path | str, since: int | None, out: Output) -> None:
    """All groups with their topics, members and lag; with --since, rates, waits and failures of that time."""
    if since is not None:
        from rmqclient.errors import NotOnCluster
        from rmqclient.workers.commands.period import show_since

        if not isinstance(root, Path):
            raise NotOnCluster("the history is kept in the directory of a store: a cluster has none")
        show_since(root, since, "group", "", out)
        return
    with opened_admin(root) as admin:
        rows = [status.group_row(info) for info in admin.groups()]
    nothing = "no groups yet: a group is there when `rmq run`, or another consumer, has joined it"
    out.write(rows, nothing=nothing)


@group.command("lag")
@click.argument("group_name", metavar="GROUP")
@with_store
@with_rows
@with_watch
def group_lag(group_name: str, root: Path | str, out: Output) -> None:
    """Offsets, lag, owner and state of every queue of GROUP; of a broadcast group, for each member it ever had.

    A state is running, paused, no owner, or why the owner takes nothing at the moment, such as "flow control: span".
    """
    with opened_admin(root) as admin:
        found = admin.lag(group_name) or _nothing_of(admin, group_name)
    out.write([status.row_of(lag) for lag in found])


@group.command("info")
@click.argument("group_name", metavar="GROUP")
@with_store
@with_rows
@with_watch
def group_info(group_name: str, root: Path | str, out: Output) -> None:
    """Show the topics of GROUP: the subscriptions of its members, with tags and filters, and their lag.

    Members that subscribe to different messages of a topic are listed on separate lines.
    """
    with opened_admin(root) as admin:
        found = admin.subscriptions(group_name) or _nothing_of(admin, group_name)
    out.write([status.row_of(each) for each in found])


@group.command("assignment")
@click.argument("group_name", metavar="GROUP")
@with_store
@with_rows
@with_watch
def group_assignment(group_name: str, root: Path | str, out: Output) -> None:
    """Show the queues of each member of GROUP, a line for each member.

    A spare has no queue. Queues without an owner are on a separate line. The table omits retry topics.
    """
    with opened_admin(root) as admin:
        found = admin.assignment(group_name) or _nothing_of(admin, group_name)
    own = [each for each in found if each.topic != f"%RETRY%{group_name}"]
    out.write([_row(each) for each in found], rows=[_line(each, own) for each in own])


@group.command("seek")
@click.argument("group_name", metavar="GROUP")
@click.argument("topic_name", metavar="TOPIC", required=False)
@click.option("--to", type=position, help="earliest, latest, a queue offset, 2h ago, or 2026-11-20T10:00Z.")
@click.option("--shift", type=int, help="Move by N messages per queue; negative moves back.")
@click.option(
    "--to-file",
    "file",
    type=click.File("r"),
    help="Lines `TOPIC QUEUE OFFSET`, or what `rmq group lag GROUP -o jsonl` printed; - for standard input.",
)
@_with_queue
@click.option("--dry-run", is_flag=True, help="Only print the new positions.")
@with_yes
@with_store
@with_output
def group_seek(
    group_name: str,
    topic_name: str | None,
    to: str | int | datetime.datetime | None,
    shift: int | None,
    file: TextIO | None,
    queue_id: int | None,
    dry_run: bool,
    yes: bool,
    root: Path | str,
    out: Output,
) -> None:
    """Move GROUP to another position in the queues of TOPIC, to deliver messages again or to skip some.

    Workers may keep running: they lose the queues and take them again at the new position. Messages in flight after the
    new position can be delivered again. On a terminal it shows the positions and asks.
    """
    if sum(each is not None for each in (to, shift, file)) != 1:
        raise click.UsageError("give one of --to, --shift and --to-file")
    if (topic_name is None) is (file is None):
        raise click.UsageError("name TOPIC with --to and --shift; a file names the topics itself")
    if file is not None:
        refuse(["queue_id"], "beside --to-file, which names the queues itself")
    with opened_admin(root) as admin:

        def move(*, dry_run: bool) -> list[SeekInfo]:
            if file is not None:
                return admin.place(group_name, places, dry_run=dry_run)
            assert topic_name is not None
            if shift is not None:
                return admin.shift(group_name, topic_name, shift, queue_id=queue_id, dry_run=dry_run)
            return admin.seek(group_name, topic_name, to, queue_id=queue_id, dry_run=dry_run)  # type: ignore[arg-type]

        places = {} if file is None else places_in(file)
        _moved(move, group_name, dry_run, yes, out)


@group.command("clone")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--topic", "topic_name", help="Only this topic.  [default: all that FROM consumed]")
@click.option("--dry-run", is_flag=True, help="Only print the new positions.")
@with_yes
@with_store
@with_output
def group_clone(
    source: str, target: str, topic_name: str | None, dry_run: bool, yes: bool, root: Path | str, out: Output
) -> None:
    """Move the group TO to the offsets of the group FROM. TO also gets the messages that FROM finished out of order."""
    if source == target:
        raise click.UsageError(f"{source} stands where it stands: name another group to move")
    with opened_admin(root) as admin:

        def move(*, dry_run: bool) -> list[SeekInfo]:
            return admin.clone(source, target, topic=topic_name, dry_run=dry_run)

        _moved(move, target, dry_run, yes, out)


@group.command("rm")
@click.argument("group_name", metavar="GROUP")
@click.option("--dry-run", is_flag=True, help="Only print its offsets.")
@with_yes
@with_store
@with_output
def group_rm(group_name: str, dry_run: bool, yes: bool, root: Path | str, out: Output) -> None:
    """Remove GROUP, which must have no members: its offsets, its settings, its waiting retries.

    Prints its offsets, in lines that `group seek --to-file` reads. Messages and dead letters stay. A consumer that
    joins under this name later is a new group.
    """
    with opened_admin(root) as admin:
        stood = admin.remove_group(group_name, dry_run=True)
        if not dry_run:
            behind = sum(each.lag for each in stood)
            confirm(f"forget {group_name}, with {len(stood)} queues and {behind} messages behind?", yes=yes)
            admin.remove_group(group_name)
            if admin.lag(group_name):
                click.echo(f"{group_name}: the server has kept its offsets", err=True)
    out.write([status.row_of(lag) for lag in stood])


def _moved(move: Callable[..., list[SeekInfo]], group_name: str, dry_run: bool, yes: bool, out: Output) -> None:
    moved = move(dry_run=True)
    if not dry_run:
        again = sum(max(0, (each.from_offset or 0) - each.to_offset) for each in moved)
        skipped = sum(max(0, each.to_offset - (each.from_offset or 0)) for each in moved)
        confirm(f"move {group_name} in {len(moved)} queues: {again} messages again, {skipped} skipped. Go on?", yes=yes)
        moved = move(dry_run=False)
    out.write([status.row_of(info) for info in moved])


def places_in(lines: Iterable[str]) -> dict[tuple[str, int], int]:
    """Return the queue offset for each topic and queue id. Raises ``click.BadParameter`` for another line."""
    import orjson

    found = {}
    for number, line in enumerate(lines, 1):
        try:
            if line.startswith("{"):
                row = orjson.loads(line)
                topic, queue_id, offset = (
                    row["topic"],
                    row["queue_id"],
                    row.get("to_offset", row.get("committed_offset")),
                )
            elif line.split():
                topic, queue_id, offset = line.split()
            else:
                continue
            found[topic, int(queue_id)] = int(offset)
        except (ValueError, KeyError, TypeError) as error:
            raise click.BadParameter(
                f"line {number}, {line.strip()[:60]!r}: write TOPIC QUEUE OFFSET", param_hint="--to-file"
            ) from error
    return found


def _nothing_of(admin: Admin, group_name: str) -> NoReturn:
    from rmqclient.names import check_group

    check_group(group_name)
    raise unknown("group", group_name, [info.group for info in admin.groups()])


@group.command("pause")
@click.argument("group_name", metavar="GROUP")
@click.argument("topic_name", metavar="TOPIC", required=False)
@_with_queue
@click.option("--reason", default="", help="Why, for `rmq events`.")
@with_store
@with_output
def group_pause(
    group_name: str, topic_name: str | None, queue_id: int | None, reason: str, root: Path | str, out: Output
) -> None:
    """Stop GROUP from taking messages of TOPIC, or of every topic that it ever consumed, until it is resumed."""
    from functools import partial

    from rmqclient.admin import Admin

    _set_paused(partial(Admin.pause, reason=reason), group_name, topic_name, queue_id, root, out)


@group.command("resume")
@click.argument("group_name", metavar="GROUP")
@click.argument("topic_name", metavar="TOPIC", required=False)
@_with_queue
@with_store
@with_output
def group_resume(group_name: str, topic_name: str | None, queue_id: int | None, root: Path | str, out: Output) -> None:
    """Let GROUP take messages again."""
    from rmqclient.admin import Admin

    _set_paused(Admin.resume, group_name, topic_name, queue_id, root, out)


def _set_paused(
    change: Callable[..., list[QueueLag]],
    group_name: str,
    topic_name: str | None,
    queue_id: int | None,
    root: Path | str,
    out: Output,
) -> None:

    if queue_id is not None and topic_name is None:
        raise click.UsageError("--queue belongs to a topic: name TOPIC, too")

    with opened_admin(root) as admin:
        changed = change(admin, group_name, topic_name, queue_id=queue_id)
        out.write([status.row_of(lag) for lag in changed])


def _row(assigned: MemberAssignment) -> dict[str, Any]:
    age_ms = assigned.heartbeat_age_ms
    return {**status.row_of(assigned), "heartbeat_age_ms": status.rounded(age_ms, 1)}


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
