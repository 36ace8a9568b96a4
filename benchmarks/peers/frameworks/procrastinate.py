"""procrastinate, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.peers.frameworks import jobs
from benchmarks.peers.frameworks.framework import KINDS, Framework, Kind
from benchmarks.peers.peer import Level, Promise, Running
from benchmarks.peers.processes import lacking, program, version_of
from benchmarks.peers.queues import postgresql


class Procrastinate(Framework):
    """Its settings are procrastinate's own."""

    packages: ClassVar[tuple[str, ...]] = ("procrastinate==3.10.0", postgresql.CLIENT)
    delays: ClassVar[bool] = True
    name = "procrastinate"
    title = "procrastinate on PostgreSQL"
    promise = Promise(Level.DISK, "at each commit")
    ways = "one job at a time in each worker, which is notified of new ones"

    def missing(self) -> str:
        """Return whether there is no PostgreSQL."""
        return lacking("initdb", "postgres")

    @contextmanager
    def running(self, home: Path) -> Iterator[Running]:
        """Start PostgreSQL, and make the tables."""
        with postgresql.started(home) as running:
            yield Running(running.address, running.pids, home, running.begun_ns)

    @contextmanager
    def tasks(self, address: str) -> Iterator[Application]:
        """Make the application, and its tables if they are not there."""
        import procrastinate
        import psycopg

        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("SELECT pg_advisory_lock(3)")
            exists = connection.execute("SELECT to_regclass('procrastinate_jobs')").fetchone()
            if exists is None or exists[0] is None:
                connection.execute(procrastinate.schema.SchemaManager.get_schema())
        with procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=address)).open() as putting:
            yield Application(procrastinate, putting, address)

    def versions(self) -> dict[str, str]:
        """Return the version of PostgreSQL."""
        return {"server": version_of(program("postgres"), "--version")}


class Application:
    """Tasks."""

    def __init__(self, library: Any, putting: Any, address: str) -> None:
        self._library = library
        self._address = address
        self._tasks = {kind: putting.task(name=kind)(getattr(jobs, kind)) for kind in KINDS}

    def enqueue(self, kind: Kind, argument: int) -> None:
        """Defer the task."""
        self._tasks[kind].defer(argument=argument)

    def enqueue_later(self, kind: Kind, argument: int, delay_s: float) -> None:
        """Defer the task to a later time."""
        self._tasks[kind].configure(schedule_in={"seconds": delay_s}).defer(argument=argument)

    def work(self) -> None:
        """Run a worker."""
        connector = self._library.PsycopgConnector(conninfo=self._address)
        application = self._library.App(connector=connector)
        for kind in KINDS:
            application.task(name=kind)(getattr(jobs, kind))
        application.run_worker(install_signal_handlers=False)
