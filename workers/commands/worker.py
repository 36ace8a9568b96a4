"""``rmq worker``: the worker processes of a store."""

from __future__ import annotations

from pathlib import Path

import click

from rmqclient.workers.console import status
from rmqclient.workers.console.opening import opened_store
from rmqclient.workers.console.output import write
from rmqclient.workers.console.parameters import with_output, with_store


@click.group()
def worker() -> None:
    """List worker processes."""


@worker.command("ls")
@with_store
@with_output
def worker_ls(root: Path | str, output: str, query: str | None) -> None:
    """List the workers of all supervisors: state, age of the last beat and of the oldest message in flight."""
    with opened_store(root, "worker processes") as store:
        write([status.worker_row(row) for row in store.workers().all()], output=output, query=query)
