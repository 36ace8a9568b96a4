"""Some disks that vanish and come back without a boot."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.torture.damage import vanishing_disk


@pytest.mark.crash
@pytest.mark.guarantee("G109")
@pytest.mark.guarantee("G112")
@pytest.mark.sweep
def test_a_disk_that_comes_back_without_a_boot_loses_and_doubles_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    result = vanishing_disk.run(seed, 6, tmp_path)
    print(result)
    if result.skipped:
        pytest.skip(result.skipped)
    assert result.problems == []
    assert result.figures["acknowledged and there"]
