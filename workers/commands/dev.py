"""``rmq dev``: the handlers of an application, reloaded while they are written."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import sys
from pathlib import Path

import click

from rmqclient.workers.console.parameters import STORE, StoreOption, duration, is_for_this_command, refuse
from rmqclient.workers.exit_codes import EXPLAINED


@click.command(epilog=EXPLAINED)
@click.argument("target")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only handlers of this group; repeatable.")
@click.option("--store", "root", cls=StoreOption, type=STORE, help="Directory or URL, instead of the App's own.")
@click.option(
    "--watch",
    "watched",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Another directory or file to watch; repeatable.",
)
@click.option("--wipe", "has_wipe", is_flag=True, help="Begin with an empty store.")
@click.option("--yes", "has_yes", is_flag=True, help="With --wipe: even if messages were not handled.")
@click.option("--shutdown-timeout", type=duration, default="2s", show_default=True, help="Time for handlers to finish.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Level of the application's own log lines.",
)
def dev(
    target: str,
    groups: tuple[str, ...],
    root: Path | str | None,
    watched: tuple[Path, ...],
    has_wipe: bool,
    has_yes: bool,
    shutdown_timeout: float,
    log_level: str,
) -> None:
    """Run the handlers and schedules of TARGET in one process, and again whenever a file is saved.

    Shows a line for each message, and the traceback of each failure. If a file cannot be imported, the error is shown,
    and the next save starts another attempt. TARGET is written as for `rmq run`.

    Without a store in the code or the settings it is ./.rmq-dev. --wipe removes a store that `rmq dev` has made, or
    one that --store names; if that has messages that were not handled, add --yes.
    """
    if not has_wipe:
        refuse(["has_yes"], "without --wipe")
    from rmqclient.workers.development.child import Boot
    from rmqclient.workers.development.reloader import STOPS, Reloader
    from rmqclient.workers.processes.signals import SignalPipe

    boot = Boot(
        target=target,
        groups=groups,
        root=None if root is None else str(root),
        is_stronger=root is not None and is_for_this_command(),
        has_wipe=has_wipe,
        has_yes=has_yes,
        drain_timeout_s=shutdown_timeout,
        log_level=log_level.upper(),
        control=-1,
    )
    with SignalPipe(*STOPS) as pipe:
        pipe.install()
        sys.exit(Reloader(boot, [Path.cwd(), *_beside(target), *watched], pipe).run())


def _beside(target: str) -> list[Path]:
    """Return the directory of a target that names a file outside of the working directory."""
    file = Path(target.partition(":")[0]).absolute()
    return [file.parent] if file.suffix == ".py" and not file.is_relative_to(Path.cwd()) else []
