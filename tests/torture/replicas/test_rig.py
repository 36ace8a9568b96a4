"""A few rounds of kills, failing networks, promotions and power cuts of two hosts."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.crash
@pytest.mark.guarantee("G80")
@pytest.mark.guarantee("G81")
@pytest.mark.guarantee("G82")
@pytest.mark.guarantee("G83")
@pytest.mark.sweep
def test_kills_partitions_promotions_and_power_cuts_lose_nothing_that_was_replicated(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    command = ["-m", "tests.torture", "replication", "--rounds", "12", "--seed", str(seed), "--no-record"]
    run = subprocess.run(  # it forks, so it needs a process without threads
        [sys.executable, *command, "--scratch", str(tmp_path)], capture_output=True, text=True, check=False, timeout=900
    )
    assert run.returncode == 0, f"seed {seed}:\n{run.stdout}\n{run.stderr}"
