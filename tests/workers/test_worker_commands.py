"""``rmq worker``: stacks, restarts and more workers, of a supervisor that runs; and its health from outside."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.workers.supervised import COMMAND, Supervised, environment


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def worker(supervised: Supervised, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [*COMMAND, *arguments, "--store", str(supervised.root)]
    return subprocess.run(line, env=environment(), capture_output=True, text=True, check=False, timeout=60)


def test_workers_are_looked_into_restarted_and_scaled(tmp_path: Path, variables: None) -> None:
    supervised = Supervised(tmp_path, "obedient", "--processes", "1")
    try:
        pid = supervised.ready(1)[1]

        # Its health is seen from outside
        live = worker(supervised, "check", "live")
        assert (live.returncode, f"supervisor {supervised.process.pid} looks after 1 workers" in live.stdout) == (
            0,
            True,
        )
        assert worker(supervised, "check", "ready").returncode == 0
        assert worker(supervised, "check", "ready", "--min-ready", "2").returncode == 1

        # So is what its threads run, and it goes on
        standing = worker(supervised, "worker", "stack", str(pid))
        assert standing.stdout.startswith("worker-1 runs no message"), standing.stderr
        stack = worker(supervised, "worker", "stack", str(pid), "--all")
        assert "most recent call first" in stack.stdout, stack.stderr
        assert "worker.py" in stack.stdout

        # It is replaced, and joined by another one, and that one leaves
        done = worker(supervised, "worker", "restart", str(pid))
        assert done.returncode == 0, done.stderr
        assert supervised.replaced(1, pid) != pid
        assert worker(supervised, "worker", "scale", "2").stderr.endswith(": 2 workers\n")
        assert worker(supervised, "worker", "scale", "1").stderr.endswith(": 1 workers\n")

        # What is no worker gets no signal
        refused = worker(supervised, "worker", "restart", str(supervised.process.pid))
        assert (refused.returncode, "is not a worker of this store" in refused.stderr) == (1, True)
    finally:
        supervised.process.terminate()
        supervised.process.wait(30)
