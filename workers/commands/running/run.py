"""``rmq run``: the handlers and schedules of an application, in worker processes."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqclient.workers.console import status
from rmqclient.workers.console.opening import opening
from rmqclient.workers.console.parameters import STORE, StoreOption, address, duration
from rmqclient.workers.exit_codes import EXPLAINED, ExitCode

if TYPE_CHECKING:
    from rmqclient import App
    from rmqclient.workers.processes.worker_life import Limits


@click.command(epilog=EXPLAINED)
@click.argument("target")
@click.option("--processes", type=click.IntRange(min=1), help="Worker processes.  [default: one per usable CPU]")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only handlers of this group; repeatable.")
@click.option("--store", "root", cls=StoreOption, type=STORE, help="Directory or URL, instead of the App's own.")
@click.option("--shutdown-timeout", type=duration, default="30s", show_default=True, help="Time to finish after TERM.")
@click.option(
    "--time-limit",
    type=duration,
    default="15m",
    show_default=True,
    help="Longest time for one message; 0 for no limit.",
)
@click.option(
    "--beat-timeout",
    type=duration,
    default="30s",
    show_default=True,
    help="A worker that is silent for so long has hung.",
)
@click.option(
    "--member-name",
    default="worker",
    show_default=True,
    help="Workers are NAME-1, NAME-2 and so on of broadcast groups.",
)
@click.option("--metrics", "metrics_at", type=address, metavar="HOST:PORT", help="Serve metrics at /metrics there.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="info",
    show_default=True,
)
def run(
    target: str,
    processes: int | None,
    groups: tuple[str, ...],
    root: Path | str | None,
    shutdown_timeout: float,
    time_limit: float,
    beat_timeout: float,
    member_name: str,
    metrics_at: tuple[str, int] | None,
    log_level: str,
) -> None:
    """Run the handlers and schedules of TARGET in worker processes.

    TARGET is module:attribute, with the working directory on the path, or file.py:attribute.

    With --group other workers must run the handlers of the other groups. Schedules run with every choice of groups.

    TERM and the first Ctrl-C let the messages in flight finish; the second Ctrl-C kills the workers. A worker that dies
    or hangs is replaced. TTIN and TTOU add and remove a worker.
    """
    from rmqclient.workers.loading import load_app, of_groups
    from rmqclient.workers.processes.worker import configure_logging
    from rmqclient.workers.processes.worker_life import Limits

    configure_logging(log_level.upper())
    app = of_groups(load_app(target), groups)
    limits = Limits(
        shutdown_timeout_s=shutdown_timeout,
        message_time_limit_s=time_limit or float("inf"),
        beat_timeout_s=beat_timeout,
    )
    place, count = root or app.root, processes or _usable_cpus()
    sys.exit(_supervise(app, place, count, limits, log_level.upper(), member_name, metrics_at))


def _supervise(
    app: App,
    root: Path | str,
    processes: int,
    limits: Limits,
    log_level: str,
    member_name: str,
    metrics_at: tuple[str, int] | None,
) -> ExitCode:
    from rmqclient.names import check_member
    from rmqclient.workers import handler_transfer
    from rmqclient.workers.processes import places, supervisor, worker
    from rmqclient.workers.processes.child import start_fork_server
    from rmqclient.workers.processes.signals import SignalPipe

    check_member(f"{member_name}-1")
    boot = worker.Boot(
        root=root,
        config=app.config,
        transfer=handler_transfer.transfer(app),
        consumer=app.consumer,
        slot=0,
        drain_timeout_s=limits.drain_timeout_s,
        log_level=log_level,
    )
    start_fork_server()  # before the store and the housekeeper, which may start threads
    with (
        SignalPipe(*supervisor.SIGNALS) as signal_pipe,
        opening(root, lambda: places.for_supervisor(root, app.config)) as place,
        contextlib.ExitStack() as shown_at,
    ):
        banner = status.banner(
            place.name, app.handlers, processes=processes, durability=place.durability, crons=app.crons
        )
        click.echo(banner, err=True)
        if metrics_at is not None:
            shown_at.enter_context(_metrics(root, metrics_at))
        signal_pipe.install()  # from here until the store is closed no signal interrupts anything
        return supervisor.Supervisor(
            place.workers, boot, signal_pipe, processes=processes, limits=limits, member_name=member_name
        ).run()


@contextlib.contextmanager
def _metrics(root: Path | str, address: tuple[str, int]) -> Iterator[None]:
    """Serve the metrics from a thread of the supervisor."""
    from rmqclient.metrics import Listener, Source

    try:
        listener = Listener(Source(root), address)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {address[0]}:{address[1]}: {error.strerror or error}") from error
    with listener:
        host, port = listener.address
        click.echo(f"metrics: http://{host}:{port}/metrics", err=True)
        yield


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0))
