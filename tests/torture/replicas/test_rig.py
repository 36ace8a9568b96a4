"""A few rounds of the rigs of two hosts: kills, failing networks, promotions, power cuts."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.power.disks.machine import why_not
from tests.torture.replicas import power


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


@pytest.mark.crash
@pytest.mark.guarantee("G74")
@pytest.mark.guarantee("G83")
@pytest.mark.sweep
@pytest.mark.parametrize("side", power.SIDES)
def test_power_cuts_of_one_side_take_nothing_that_was_replicated(tmp_path: Path, side: str) -> None:
    if reason := why_not():
        pytest.skip(reason)
    seed = random.randrange(1 << 32)
    found = power.cut("ext4", side, 8, seed, tmp_path)
    assert found["problems"] == [], f"seed {seed}"
    assert found["cuts"] == 8
