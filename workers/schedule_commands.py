"""``rmq schedule``: what is sent by the clock."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import click

from workers.output import write
from workers.parameters import with_output

if TYPE_CHECKING:
    from rmqclient.cron import Cron


@click.group()
def schedule() -> None:
    """Messages that wait for their time, and schedules of applications."""


@schedule.command("crons")
@click.argument("target")
@with_output
def schedule_crons(target: str, output: str, query: str | None) -> None:
    """The schedules of TARGET, which is what `rmq run` takes, with their next times in UTC."""
    from workers.loading import load_app

    now = datetime.datetime.now(datetime.UTC)
    write([_cron_row(each, now) for each in load_app(target).crons], output=output, query=query)


def _cron_row(cron: Cron, now: datetime.datetime) -> dict[str, Any]:
    following = cron.next_tick(now)
    return {
        "name": cron.name,
        "topic": cron.topic,
        "when": cron.when,
        "next": None if following is None else f"{following.astimezone(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}",
        "misfire_grace_s": int(cron.misfire_grace.total_seconds()),
        "coalesce": cron.coalesce,
    }
