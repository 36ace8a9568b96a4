"""Real power cuts, some of them; ``python -m tests.torture power`` does thousands."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.power.disks.machine import why_not
from tests.torture.wholes import power

ROUNDS = int(os.environ.get("RMQ_TEST_POWER_CUTS", "24"))
SEED = int(os.environ.get("RMQ_TEST_SEED", random.SystemRandom().randrange(1 << 32)))


@pytest.mark.crash
@pytest.mark.guarantee("G2")
@pytest.mark.guarantee("G3")
@pytest.mark.guarantee("G5")
@pytest.mark.guarantee("G7")
@pytest.mark.parametrize("file_system", ["ext4"])
def test_power_cuts_take_nothing_that_was_promised(tmp_path: Path, file_system: str) -> None:
    if reason := why_not(file_system):
        pytest.skip(reason)
    found = power.cut(file_system, ROUNDS, SEED, tmp_path)
    assert found["problems"] == [], f"seed {SEED}"
    assert found["cuts"] >= ROUNDS
    assert found["judgements"] > 0
    assert found["acknowledged_sync"] > 0
    assert found["lost_sync"] == 0
