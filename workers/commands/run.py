"""``rmq run``: the handlers and schedules of an application, in worker processes."""

# ruff: noqa: PLC0415 - imports inside commands: help is quick

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqclient.workers.console import status
from rmqclient.workers.console.opening import opening
from rmqclient.workers.console.parameters import (
    STORE,
    StoreOption,
    address,
    duration,
    is_for_this_command,
    with_log_options,
)
from rmqclient.workers.exit_codes import EXPLAINED, ExitCode

if TYPE_CHECKING:
    from rmqclient import App
    from rmqclient.health.service_manager import ServiceManager
    from rmqclient.workers.processes import places
    from rmqclient.workers.processes.logs import LogFormat
    from rmqclient.workers.processes.reporting import Reporting
    from rmqclient.workers.processes.signals import SignalPipe
    from rmqclient.workers.processes.worker import Boot
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
    "--start-timeout",
    type=duration,
    default="10m",
    show_default=True,
    help="Longest time until a worker is ready, including imports; 0 for no limit.",
)
@click.option(
    "--beat-timeout",
    type=duration,
    default="30s",
    show_default=True,
    help="Silence after which a worker counts as hung.",
)
@click.option(
    "--member-name",
    default="worker",
    show_default=True,
    help="In broadcast groups workers are called NAME-1, NAME-2 and so on.",
)
@click.option(
    "--metrics", "metrics_at", type=address, metavar="HOST:PORT", help="Serve /metrics, /live and /ready there."
)
@click.option(
    "--report",
    "report_s",
    type=duration,
    default="1m",
    show_default=True,
    help="Interval between progress lines; 0 disables them.",
)
@with_log_options
def run(
    target: str,
    processes: int | None,
    groups: tuple[str, ...],
    root: Path | str | None,
    shutdown_timeout: float,
    time_limit: float,
    start_timeout: float,
    beat_timeout: float,
    member_name: str,
    metrics_at: tuple[str, int] | None,
    report_s: float,
    log_level: str,
    log_format: LogFormat,
) -> None:
    """Run the handlers and schedules of TARGET in worker processes.

    TARGET is module:attribute, with the working directory on the path, or file.py:attribute. Each worker imports it
    when it starts, so one that is started again runs the code as it is on disk then.

    With --group, start other workers for the other groups. Schedules run with every choice of groups.

    TERM and the first Ctrl-C let the messages in flight finish; the second Ctrl-C kills the workers. A worker that dies
    or hangs is replaced. TTIN and TTOU add and remove a worker. A service manager that sets NOTIFY_SOCKET is notified.
    """
    from rmqclient.health.service_manager import ServiceManager
    from rmqclient.names import check_member
    from rmqclient.workers.loading import ImportedApp, place_of
    from rmqclient.workers.processes.logs import configure_logging
    from rmqclient.workers.processes.signals import SignalPipe
    from rmqclient.workers.processes.supervisor import SIGNALS
    from rmqclient.workers.processes.worker import Boot
    from rmqclient.workers.processes.worker_life import Limits

    configure_logging(log_level.upper(), log_format)
    check_member(f"{member_name}-1")
    with (
        ServiceManager.of_this_process() as manager,  # before the application can start a process
        SignalPipe(*SIGNALS) as signal_pipe,  # and before it can ignore a signal
    ):
        named = ImportedApp.of(target, groups)
        app = named.load()
        place = place_of(app, root, is_stronger=is_for_this_command()) or app.root
        limits = Limits(
            shutdown_timeout_s=shutdown_timeout,
            message_time_limit_s=time_limit or float("inf"),
            start_timeout_s=start_timeout or float("inf"),
            beat_timeout_s=beat_timeout,
        )
        boot = Boot(
            root=place,
            config=app.config,
            app=named,
            before_import=app.hooks.before_import(),
            log_level=log_level.upper(),
            log_format=log_format,
        )
        running = _Running(app, named.with_version(), boot, limits, report_s)
        sys.exit(running.supervise(manager, signal_pipe, processes or _usable_cpus(), member_name, metrics_at))


@dataclass(frozen=True, slots=True)
class _Running:
    """One run of an application: what it runs, and how."""

    app: App
    """As this process imported it; each worker imports it again."""
    name: str
    """Its module and attribute, with its version if there is one."""
    boot: Boot
    limits: Limits
    report_s: float

    def supervise(
        self,
        manager: ServiceManager,
        signal_pipe: SignalPipe,
        processes: int,
        member_name: str,
        metrics_at: tuple[str, int] | None,
    ) -> ExitCode:
        """Run workers until they are told to stop."""
        from rmqclient.workers.processes import places, supervisor
        from rmqclient.workers.processes.child import start_fork_server

        root, log_format = self.boot.root, self.boot.log_format
        start_fork_server()  # before the store and the housekeeper, which may start threads
        with (
            opening(root, lambda: places.for_supervisor(root, self.boot.config)) as place,
            contextlib.ExitStack() as shown_at,
        ):
            self._say(place, processes)
            reporting = self._reporting(manager, place)
            if metrics_at is not None:
                shown_at.enter_context(_metrics(root, metrics_at, reporting, log_format))
            signal_pipe.install()  # from here until the store is closed no signal interrupts anything
            return supervisor.Supervisor(
                place.workers,
                self.boot,
                signal_pipe,
                processes=processes,
                limits=self.limits,
                member_name=member_name,
                reporting=reporting,
                check_in_place=place.check_in_place,
                mark=place.mark,
                application=self.name,
            ).run()

    def _reporting(self, manager: ServiceManager, place: places.Supervised) -> Reporting:
        from rmqclient.workers.processes.reporting import Reporting

        names = {handler.group for handler in self.app.handlers}
        return Reporting(
            manager,
            lambda: [info for info in place.groups() if info.group in names],
            every_s=self.report_s,
            beat_timeout_s=self.limits.beat_timeout_s,
        )

    def _say(self, place: places.Supervised, processes: int) -> None:
        banner = status.banner(
            place.name, self.app.handlers, processes=processes, durability=place.durability, crons=self.app.crons
        )
        _tell(banner, self.boot.log_format)


def _tell(text: str, log_format: LogFormat) -> None:
    """Say something on standard error: as it is, or as a line of a log that programs read."""
    if log_format == "text":
        with contextlib.suppress(OSError):  # as in a log: a disk that is full stops no worker
            click.echo(text, err=True)
    else:
        logging.getLogger(__name__).info("%s", "; ".join(" ".join(line.split()) for line in text.splitlines()))


@contextlib.contextmanager
def _metrics(root: Path | str, address: tuple[str, int], reporting: Reporting, log_format: LogFormat) -> Iterator[None]:
    """Serve the metrics and the probes from a thread of the supervisor."""
    from rmqclient.metrics import Listener, Source

    probes = {
        "/live": lambda: (reporting.is_well, reporting.state),
        "/ready": lambda: (reporting.is_ready, reporting.state),
    }
    try:
        listener = Listener(Source(root), address, probes)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {address[0]}:{address[1]}: {error.strerror or error}") from error
    with listener:
        host, port = listener.address
        _tell(f"metrics: http://{host}:{port}/metrics", log_format)
        yield


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0))
