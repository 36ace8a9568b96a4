"""The quick parts of the rigs whose operating system says no."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.torture.damage import disk_full, failures
from tests.torture.result import Rig


@pytest.mark.crash
@pytest.mark.guarantee("G1")
@pytest.mark.parametrize(("rig", "rounds"), [(disk_full.RIG, 8), (failures.RIG, 30)], ids=["disk-full", "nth-failure"])
@pytest.mark.sweep
def test_a_quick_part_of_a_rig_finds_nothing(tmp_path: Path, rig: Rig, rounds: int) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    result = rig.run(seed, rounds, tmp_path)
    print(result)
    if result.skipped:
        pytest.skip(result.skipped)
    assert result.problems == []
