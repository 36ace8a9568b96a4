"""``rmq schedule``: messages that wait for their time, cancelling them, and what applications send by the clock."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqclient.workers.console.opening import opened_store
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import with_output, with_rows, with_store
from rmqclient.workers.console.tree import Noun
from rmqclient.workers.console.watching import with_watch
from rmqclient.workers.exit_codes import ExitCode

if TYPE_CHECKING:
    from rmqclient.schedules.cron import Cron
    from rmqclient.schedules.waiting import Pending


@click.group(cls=Noun)
def schedule() -> None:
    """Show and cancel messages that wait for their time, and show the schedules of applications."""


@schedule.command("ls")
@click.option("--topic", "topic_name", help="Only messages for this topic.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True)
@with_store
@with_rows
@with_watch
def schedule_ls(topic_name: str | None, limit: int, root: Path | str, out: Output) -> None:
    """List the messages that wait for their time, the next one first. Messages with a delay level are not listed."""
    from rmqclient.schedules import waiting

    now_ms = time.time_ns() // 1_000_000
    with opened_store(root, "messages that wait for a time") as store:
        rows = (_waiting_row(each, now_ms) for each in waiting.select(store, topic=topic_name))
        nothing = "no message waits for its time; those with a delay level are not listed"
        if not out.write(rows, limit=limit, nothing=nothing) and topic_name is not None:
            store.topics.queues(topic_name)  # raises UnknownTopic


@schedule.command("cancel")
@click.argument("message_ids", metavar="ID...", nargs=-1, required=True)
@with_store
@with_output
def schedule_cancel(message_ids: tuple[str, ...], root: Path | str, out: Output) -> None:
    """Cancel the messages with these IDs: they are never delivered.

    All IDs are tried. The exit code is 1 if any of the messages was not waiting.
    """
    from rmqclient.schedules import waiting

    with opened_store(root, "messages that wait for a time") as store:
        found = {message_id: waiting.cancel(store, message_id) for message_id in message_ids}
    rows = [{"message_id": each, "state": "cancelled" if done else "not waiting"} for each, done in found.items()]
    out.write(rows)
    if not all(found.values()):
        click.get_current_context().exit(ExitCode.FAILED)


@schedule.command("crons")
@click.argument("target")
@with_rows
def schedule_crons(target: str, out: Output) -> None:
    """List the schedules of TARGET, as `rmq run` takes it, with their next times."""
    from rmqclient.workers.loading import load_app

    now = datetime.datetime.now(datetime.UTC)
    out.write([_cron_row(each, now) for each in load_app(target).crons])


def _waiting_row(pending: Pending, now_ms: int) -> dict[str, Any]:
    due = datetime.datetime.fromtimestamp(pending.due_ms / 1000, datetime.UTC)
    return {
        "message_id": pending.message_id,
        "topic": pending.topic,
        "queue_id": pending.queue_id,
        "due": _shown(due, "milliseconds"),
        "seconds_left": round((pending.due_ms - now_ms) / 1000, 3),
    }


def _cron_row(cron: Cron, now: datetime.datetime) -> dict[str, Any]:
    following = cron.next_tick(now)
    return {
        "name": cron.name,
        "topic": cron.topic,
        "when": cron.when,
        "next": None if following is None else _shown(following.astimezone(datetime.UTC), "seconds"),
        "misfire_grace_s": int(cron.misfire_grace.total_seconds()),
        "coalesce": cron.coalesce,
    }


def _shown(moment: datetime.datetime, precision: str) -> str:
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")
