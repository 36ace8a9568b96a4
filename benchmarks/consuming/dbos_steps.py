"""DBOS on SQLite: a workflow of three steps, whose results it stores. Installed beside the environment for one run."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

from benchmarks.child import Begin
from benchmarks.measure import Span

PACKAGE = "dbos==3.4.0"


def work(begin: Begin, packages: Path, database: Path, workflows: int, steps: int) -> Span:
    """Run workflows one after the other, called in place: none of them is taken from a queue."""
    sys.path.insert(0, str(packages))
    dbos = importlib.import_module("dbos")
    database.parent.mkdir(parents=True, exist_ok=True)
    url = f"sqlite:///{database}"
    dbos.DBOS(config={"name": "steps", "system_database_url": url, "log_level": "ERROR", "run_admin_server": False})

    @dbos.DBOS.step()  # type: ignore[untyped-decorator]
    def result() -> dict[str, int]:
        return {"number": 7}

    @dbos.DBOS.workflow()  # type: ignore[untyped-decorator]
    def handle() -> None:
        for _ in range(steps):
            result()

    def run_some(name: str, count: int) -> None:
        for number in range(count):
            with dbos.SetWorkflowID(f"{name} {number}"):
                handle()

    dbos.DBOS.launch()
    run_some("before", workflows // 5)
    begin()
    begun_ns = time.monotonic_ns()
    run_some("measured", workflows)
    ended_ns = time.monotonic_ns()
    dbos.DBOS.destroy()
    return Span(messages=workflows, record_bytes=0, begun_ns=begun_ns, ended_ns=ended_ns)
