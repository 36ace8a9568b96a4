"""The command ``rmq run`` over a place, in a session of its own, seen from outside: by its log and its exit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.interop.rocketmq import TOP

READY_S = 240.0
"""Within which workers have to be ready, and to have shut down, on a busy host."""

_READY = re.compile(r"worker (\d+) \(pid (\d+)\): ready")


@dataclass(slots=True)
class Workers:
    """One supervisor with its workers."""

    process: subprocess.Popen[bytes]
    log_path: Path

    @property
    def log(self) -> str:
        """What it has printed."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def ready(self, count: int) -> dict[int, int]:
        """Wait until workers were ready so many times; return the last process id of each by its number."""
        deadline = time.monotonic() + READY_S
        while len(found := _READY.findall(self.log)) < count:
            assert self.process.poll() is None, f"rmq run ended:\n{self.log[-3000:]}"
            assert time.monotonic() < deadline, f"{count} workers were never ready:\n{self.log[-3000:]}"
            time.sleep(0.02)
        return {int(number): int(pid) for number, pid in found}

    def stop(self) -> int:
        """Let it shut down, and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(READY_S)

    def kill(self) -> None:
        """Kill the supervisor and its workers at once, if they live."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def start_workers(
    application: Path, place: str, log_path: Path, *options: str, environment: Mapping[str, str] | None = None
) -> Workers:
    """Start ``rmq run`` of the ``app`` in a file, whose store is replaced by ``place``."""
    command = [sys.executable, "-m", "rmqclient.workers", "run", f"{application}:app", "--store", place, *options]
    with log_path.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=log_path.parent,
            env={**os.environ, "PYTHONPATH": str(TOP), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return Workers(process, log_path)
