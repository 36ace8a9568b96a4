"""Spans of worker processes, and of programs that are started by ``opentelemetry-instrument``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from tests.workers.conftest import supervise
from tests.workers.supervised import REPOSITORY, Supervised

__all__ = ["supervise"]

PROGRAM = """
import sys
from rmqclient import Message, Producer

with Producer(sys.argv[1]) as producer:
    producer.send(Message("orders", b"x"))
"""


def test_the_spans_that_a_worker_has_collected_are_exported_when_it_stops(
    supervise: Callable[..., Supervised],
) -> None:
    # Given workers whose exporter waits an hour for more spans
    run = supervise("traced", "--processes", "1")
    run.ready(1)
    run.send("one")
    run.logged("handled one")

    # When they stop
    run.process.send_signal(signal.SIGTERM)
    assert run.exit_code() == 0

    # Then the span is there
    assert run.records("process orders")


def test_the_command_of_opentelemetry_switches_spans_on(tmp_path: Path) -> None:
    # Given an installation with our entry points
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (entry,) = project["entry-points"]["opentelemetry_instrumentor"].items()
    installed = tmp_path / "site" / "ours-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[opentelemetry_instrumentor]\n{' = '.join(entry)}\n")
    (tmp_path / "program.py").write_text(PROGRAM)

    # When a program that says nothing of tracing is run by the command
    command = [sys.executable, "-c", "from opentelemetry.instrumentation.auto_instrumentation import run; run()"]
    where = os.pathsep.join([str(tmp_path / "site"), str(REPOSITORY)])
    done = subprocess.run(
        [*command, sys.executable, str(tmp_path / "program.py"), str(tmp_path / "store")],
        env={
            **os.environ,
            "PYTHONPATH": where,
            "OTEL_TRACES_EXPORTER": "console",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
        },
        capture_output=True,
        text=True,
        check=False,
    )

    # Then its send has a span
    assert '"name": "send orders"' in done.stdout, done.stderr
