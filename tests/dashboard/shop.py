"""A shop under load, in processes of its own: four workers, a sender, and a dashboard that may act."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.workers.supervised import COMMAND, REPOSITORY, environment, eventually

WORKERS = 4


@dataclass
class Shop:
    """What runs, and where."""

    store: Path
    load: subprocess.Popen[bytes]
    dashboard: subprocess.Popen[str]
    address: str
    """With the token."""
    log: Path
    """Of the dashboard."""

    @property
    def base(self) -> str:
        """The address without the token."""
        return self.address.partition("/?")[0]

    @property
    def token(self) -> str:
        """What lets a client in."""
        return self.address.partition("token=")[2]


@contextmanager
def open_shop(directory: Path, per_second: float = 60) -> Iterator[Shop]:
    """Start everything in a directory, with so many orders a second; yield when four workers are ready."""
    store, log = directory / "store", directory / "dashboard.log"
    shutil.copy(Path(__file__).parent / "apps" / "shop.py", directory)
    settings = {"cwd": directory, "env": environment(PYTHONPATH=str(REPOSITORY)), "start_new_session": True}
    children: list[subprocess.Popen[bytes] | subprocess.Popen[str]] = []
    with (directory / "run.log").open("wb") as run_log, log.open("wb") as dashboard_log:
        try:
            command = [*COMMAND, "run", "shop:app", "--processes", str(WORKERS), "--store", str(store)]
            children.append(subprocess.Popen(command, stdout=run_log, stderr=run_log, **settings))  # type: ignore[call-overload]
            ready = lambda: (directory / "run.log").read_text().count(": ready") >= WORKERS  # noqa: E731 - it is named where it is used
            eventually(ready, "four ready workers")
            load_command = [sys.executable, "-m", "tests.dashboard.load", str(store), str(per_second)]
            load = subprocess.Popen(load_command, stdin=subprocess.PIPE, **settings)  # type: ignore[call-overload]
            children.append(load)
            show = [*COMMAND, "dashboard", str(store), "--listen", "127.0.0.1:0", "--allow-actions"]
            shown = subprocess.Popen(show, stdout=subprocess.PIPE, stderr=dashboard_log, text=True, **settings)  # type: ignore[call-overload]
            children.append(shown)
            yield Shop(store, load, shown, shown.stdout.readline().strip(), log)
        finally:
            for child in children:
                end(child)


def end(child: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """End a child and its own children, by force if need be."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(child.pid, signal.SIGTERM)
        child.wait(20)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
