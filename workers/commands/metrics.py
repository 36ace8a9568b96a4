"""``rmq metrics``: the numbers of a store for Prometheus."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqclient.workers.console.opening import opening
from rmqclient.workers.console.parameters import address, name_and_value, with_store

if TYPE_CHECKING:
    from rmqclient.metrics import Source


@click.command()
@with_store
@click.option("--listen", type=address, metavar="HOST:PORT", help="Serve them at /metrics there until Ctrl-C.")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write them to a file, which is replaced at once."
)
@click.option("--per-queue", is_flag=True, help="Also lag and messages in flight of each queue.")
@click.option("--compat-names", is_flag=True, help="Add RocketMQ 5.1.0's names without a unit.")
@click.option(
    "--label", "labels", type=name_and_value, multiple=True, metavar="NAME=VALUE", help="Added to all series."
)
def metrics(
    root: Path | str,
    listen: tuple[str, int] | None,
    output: Path | None,
    per_queue: bool,
    compat_names: bool,
    labels: tuple[tuple[str, str], ...],
) -> None:
    """Print the metrics of a store in the text format of Prometheus, once, or serve them.

    Nothing is opened or changed: they are read from the memory that the processes of the store share. Of a cluster,
    these are the workers of this host; its brokers have exporters of their own.
    """
    from rmqclient.metrics import Shown, Source

    if listen is not None and output is not None:
        raise click.UsageError("give either --listen or --output")
    try:
        shown = Shown(per_queue=per_queue, bare_names=compat_names, labels=labels)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--label") from error
    source = Source(root, shown)
    if listen is not None:
        _serve(source, listen)
        return
    with opening(root, lambda: _read_once(source)) as text:
        if output is None:
            click.echo(text, nl=False)
        else:
            _put(output, text)


@contextlib.contextmanager
def _read_once(source: Source) -> Iterator[str]:
    from rmqclient.metrics import exposition

    with contextlib.closing(source):
        yield exposition(source.read())


def _put(path: Path, text: str) -> None:
    """Write a file under another name, then rename it: a reader never sees half of it."""
    written = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        written.write_text(text, encoding="utf-8")
        written.replace(path)
    except OSError as error:
        written.unlink(missing_ok=True)
        raise click.ClickException(f"cannot write {path}: {error.strerror or error}") from error


def _serve(source: Source, listen: tuple[str, int]) -> None:
    from rmqclient.metrics import Listener

    try:
        listener = Listener(source, listen)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {listen[0]}:{listen[1]}: {error.strerror or error}") from error
    signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    with listener:
        host, port = listener.address
        click.echo(f"metrics: http://{host}:{port}/metrics", err=True)
        signal.sigwait(signals)
