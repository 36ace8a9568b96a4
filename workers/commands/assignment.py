"""``rmq group assignment``: who has which queue."""

# ruff: noqa: PLC0415 - imports inside the command: help is quick

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqclient.workers.console.opening import opening
from rmqclient.workers.console.output import write
from rmqclient.workers.console.parameters import with_output, with_store

if TYPE_CHECKING:
    from rmqclient.admin import MemberAssignment

_PICTURE_CHARACTERS = 64


@click.command("assignment")
@click.argument("group_name", metavar="GROUP")
@with_store
@with_output
def assignment(group_name: str, root: Path, output: str, query: str | None) -> None:
    """Who of GROUP has which queues, a line for each member.

    A spare has none; queues that nobody has stand in a line of their own.
    """
    from rmqclient import admin

    with opening(root, lambda: admin.open_store(root, create=False)) as store:
        found = admin.assignment(store, group_name)
    rows = [_row(each) for each in found]
    write(rows, output=output, query=query, rows=[_line(each, found) for each in found])


def _row(assigned: MemberAssignment) -> dict[str, Any]:
    return {
        "group": assigned.group,
        "topic": assigned.topic,
        "client_id": assigned.client_id,
        "pid": assigned.pid,
        "heartbeat_age_ms": None if assigned.heartbeat_age_ms is None else round(assigned.heartbeat_age_ms, 1),
        "subscription": assigned.subscription,
        "queue_ids": list(assigned.queue_ids),
    }


def _line(assigned: MemberAssignment, everybody: Sequence[MemberAssignment]) -> dict[str, Any]:
    """One line of the table, with a picture in which every queue of the topic has a place."""
    owned = [queue_id for each in everybody if each.topic == assigned.topic for queue_id in each.queue_ids]
    return {
        "topic": assigned.topic,
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
