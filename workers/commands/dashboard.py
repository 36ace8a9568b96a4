"""``rmq dashboard``: a store as pages in a browser."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import ipaddress
import logging
from pathlib import Path

import click

from rmqclient.workers.console import environment
from rmqclient.workers.console.opening import one_line, opening
from rmqclient.workers.console.parameters import STORE, StoreOption, address, refuse
from rmqclient.workers.exit_codes import EXPLAINED


@click.command(epilog=EXPLAINED)
@click.argument("place", metavar="STORE", required=False, type=STORE)
@click.option("--store", "root", cls=StoreOption, type=STORE, help="The same, written as for other commands.")
@click.option(
    "--listen",
    default="127.0.0.1:8650",
    show_default=True,
    metavar="HOST:PORT",
    help="Address; port 0 picks one. Any address but loopback needs --token-file.",
)
@click.option("--uds", type=click.Path(path_type=Path), help="Listen on this socket instead, for a proxy.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Token, at least 16 characters.  [default: a new one]",
)
@click.option(
    "--allowed-host", "allowed_hosts", multiple=True, metavar="NAME", help="Name that clients may use; repeatable."
)
@click.option(
    "--author-header",
    metavar="NAME",
    help="Header by which your proxy says who asks, for `rmq events`.  [default: none]",
)
@click.option("--app", "target", metavar="MODULE:APP", help="Application whose schedules to show, as for `rmq run`.")
@click.option("--allow-actions", is_flag=True, help="Let visitors pause, move, replay, purge and decide.")
def dashboard(
    place: Path | str | None,
    root: Path | str | None,
    listen: str,
    uds: Path | None,
    token_file: Path | None,
    allowed_hosts: tuple[str, ...],
    author_header: str | None,
    target: str | None,
    allow_actions: bool,
) -> None:
    """Show STORE in a browser: what it does, what needs attention, its messages and dead letters.

    Prints an address with a token, which gives access to everything. Nothing can be changed without --allow-actions.
    Each change is logged. Needs the extra: pip install 'rmqclient[dashboard]'
    """
    if place is not None:
        refuse(["root"], "beside STORE")
    if uds is not None:
        refuse(["listen"], "beside --uds")
    if not allow_actions:
        refuse(["author_header"], "without --allow-actions: nobody can change anything")
    named = place or root
    if named is None:
        raise click.UsageError(f"no store: name its directory, give --store DIR, or set {environment.STORE}")
    from rmqclient.errors import NotInstalled
    from rmqclient.opening import open_local_store

    try:
        from rmqclient.dashboard.serving import Serving, serve
    except (NotInstalled, ImportError) as error:
        raise click.ClickException(f"{one_line(error)} (pip install 'rmqclient[dashboard]')") from error
    from rmqclient.workers.loading import load_app

    host, port = address(listen)
    token = None if token_file is None else token_file.read_text(encoding="utf-8").strip()
    if uds is None and token is None and not _is_loopback(host):
        raise click.UsageError(f"--listen {listen} can be reached from other hosts: give --token-file, too")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    serving = Serving(
        host=host,
        port=port,
        unix_socket=uds,
        token=token,
        allowed_hosts=allowed_hosts,
        allow_actions=allow_actions,
        author_header=author_header,
        crons=None if target is None else load_app(target).crons,
    )
    with opening(named, lambda: open_local_store(named, "what a dashboard shows", housekeeping=False)) as store:
        try:
            serve(store, serving, click.echo)
        except ValueError as error:
            raise click.UsageError(str(error)) from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
