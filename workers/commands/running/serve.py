"""``rmq serve``: a store for other languages, other hosts and RocketMQ's own tools."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqclient.workers.console.opening import opening
from rmqclient.workers.exit_codes import EXPLAINED

if TYPE_CHECKING:
    from rmqclient.broker.settings import Address


@click.command(epilog=EXPLAINED)
@click.argument("root", metavar="[ROOT]", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--listen",
    "listen",
    multiple=True,
    metavar="HOST:PORT",
    default=("127.0.0.1:9876",),
    show_default=True,
    help="Address of the name server and the broker; port 0 picks one; repeatable.",
)
@click.option("--ephemeral", is_flag=True, help="Use a new directory in place of ROOT, and remove it at the end.")
@click.option("--die-with-parent", is_flag=True, help="End when the process that started this one has ended.")
@click.option("--sync", is_flag=True, help="Answer a send when its message is on the disk.")
@click.option("--advertise", metavar="HOST:PORT", help="Address in routes.  [default: by which a client came in]")
def serve(
    root: Path | None,
    listen: tuple[str, ...],
    ephemeral: bool,
    die_with_parent: bool,
    sync: bool,
    advertise: str | None,
) -> None:
    """Answer RocketMQ's clients and tools over the store in ROOT, which is made if it does not exist.

    Prints one line of JSON when it is ready. TERM and Ctrl-C let answers under way finish.
    """
    from rmqclient.broker.server import serve as run
    from rmqclient.broker.settings import ServeSettings

    if ephemeral is (root is not None):
        raise click.UsageError("either ROOT or --ephemeral: the directory of the store, or a new one for this run")
    with contextlib.ExitStack() as stack:
        directory = root or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmq-"))) / "store"
        settings = ServeSettings(
            directory,
            tuple(map(_address, listen)),
            advertise=None if advertise is None else _address(advertise),
            sync=sync,
            die_with_parent=die_with_parent,
        )
        stack.enter_context(opening(directory, contextlib.nullcontext))
        run(settings, click.echo)


def _address(text: str) -> Address:
    from rmqclient.broker.settings import Address

    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise click.BadParameter(f"{text!r} is no HOST:PORT with a port from 0 to 65535")
    return Address(host.strip("[]"), int(port))
