"""``rmq worker``: the worker processes of a store, or those of this host for a cluster."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

from pathlib import Path

import click

from rmqclient.workers.console import status
from rmqclient.workers.console.opening import opened_store
from rmqclient.workers.console.output import write
from rmqclient.workers.console.parameters import with_output, with_store
from rmqclient.workers.console.tree import Noun


@click.group(cls=Noun)
def worker() -> None:
    """List worker processes."""


@worker.command("ls")
@with_store
@with_output
def worker_ls(root: Path | str, output: str, query: str | None) -> None:
    """List the workers of all supervisors: state, age of the last beat and of the oldest message in flight."""
    from rmqclient.admin.workers import workers_of_cluster

    if isinstance(root, str):
        rows = [status.worker_row(row) for row in workers_of_cluster(root).all()]
    else:
        with opened_store(root, "worker processes") as store:
            rows = [status.worker_row(row) for row in store.workers().all()]
    write(rows, output=output, query=query, nothing="no workers: `rmq run MODULE:APP` starts them")
