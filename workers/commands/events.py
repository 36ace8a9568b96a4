"""``rmq events``: what was done to a store, and by whom."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from rmqclient.workers.console.layout import local_second
from rmqclient.workers.console.opening import StoreCannotBeOpened
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import moment, with_rows, with_store

KINDS = (
    "opened", "start", "stop", "scale", "worker", "pause", "resume", "seek", "replay", "purge", "cancel", "commit",
    "rollback", "retention",
)  # fmt: skip
"""As the store has them; a test compares."""


@click.command()
@click.option(
    "--since", type=moment, default="24h", show_default=True, help="From 2h ago on, 14:05, or 2026-11-20T10:00Z."
)
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only these; may be repeated.")
@with_store
@with_rows
def events(since: int, kinds: tuple[str, ...], root: Path | str, out: Output) -> None:
    """Show what was done to a store, and by whom, the oldest first: deploys, pauses, seeks, replays, dead workers.

    A supervisor that started or stopped, its workers that died, hung or were scaled; groups that were paused, resumed
    or moved; dead letters that were sent again or put aside; deliveries that were cancelled, transactions that were
    decided by hand; files that retention removed; a store that was opened after a kill.
    """
    from rmqclient.errors import NotOnCluster, QueueError
    from rmqclient.metrics import marks_of

    if not isinstance(root, Path):
        raise NotOnCluster("events are kept in the directory of a store: a cluster has none")
    try:
        found = marks_of(root, since, kinds or KINDS)
    except (QueueError, OSError) as error:
        raise StoreCannotBeOpened(str(error)) from error
    out.write([each._asdict() for each in found], line=_line, nothing="no events since then")


def _line(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "at": local_second(row["at_ms"]),
        "event": row["kind"],
        "subject": row["subject"],
        "by": row["author"] or "-",
        "words": row["words"],
    }
