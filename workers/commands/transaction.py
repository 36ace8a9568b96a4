"""``rmq tx``: undecided transactions, and deciding them by hand."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqclient.workers.console import status
from rmqclient.workers.console.opening import opened_backend
from rmqclient.workers.console.output import Output
from rmqclient.workers.console.parameters import with_output, with_rows, with_store
from rmqclient.workers.console.tree import Noun
from rmqclient.workers.console.watching import with_watch

if TYPE_CHECKING:
    from rmqclient.sending.transactions import OpenTransaction


@click.group(cls=Noun)
def tx() -> None:
    """Show and decide transactions that were neither committed nor rolled back."""


@tx.command("ls")
@click.option("--group", help="Only transactions of this group of producers.")
@click.option("--topic", help="Only transactions for this topic.")
@with_store
@with_rows
@with_watch
def tx_ls(group: str | None, topic: str | None, root: Path | str, out: Output) -> None:
    """List undecided transactions: the abandoned ones, which only you can decide; then those still being checked."""
    from rmqclient.sending import transactions

    with opened_backend(root) as backend:
        rows = [_row(each) for each in transactions.select(backend, group=group, topic=topic)]
        if topic is not None and not rows:
            backend.topics.queues(topic)  # raises UnknownTopic
    out.write(rows, nothing="no undecided transactions")


@tx.command("commit")
@click.argument("message_ids", metavar="ID...", nargs=-1, required=True)
@with_store
@with_output
def tx_commit(message_ids: tuple[str, ...], root: Path | str, out: Output) -> None:
    """Send the messages with these IDs to their handlers."""
    _decide(message_ids, root, out, commit=True)


@tx.command("rollback")
@click.argument("message_ids", metavar="ID...", nargs=-1, required=True)
@with_store
@with_output
def tx_rollback(message_ids: tuple[str, ...], root: Path | str, out: Output) -> None:
    """Drop the messages with these IDs: they are never delivered."""
    _decide(message_ids, root, out, commit=False)


def _decide(message_ids: tuple[str, ...], root: Path | str, out: Output, *, commit: bool) -> None:
    from rmqclient.sending import transactions

    decided = []
    with opened_backend(root) as backend:
        known = {each.message.message_id: each for each in transactions.select(backend)}
        unknown = [message_id for message_id in message_ids if message_id not in known]
        if unknown:
            raise click.ClickException(f"no undecided transaction has the id {unknown[0]}; nothing was decided")
        for message_id in dict.fromkeys(message_ids):
            transactions.decide(backend, known[message_id], commit=commit)
            decided.append(_row(known[message_id]) | {"state": "committed" if commit else "rolled back"})
    out.write(decided)


def _row(transaction: OpenTransaction) -> dict[str, Any]:
    row = status.message_row(transaction.message)
    shown = ("tags", "keys", "born_timestamp", "body", "body_base64")
    return {
        "message_id": row["message_id"],
        "state": "given up" if transaction.given_up else "asked about",
        "checks": transaction.checks,
        "group": transaction.group,
        "topic": transaction.queue.topic,
        **{name: row[name] for name in shown if name in row},
    }
