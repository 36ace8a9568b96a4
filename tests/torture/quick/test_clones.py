"""Some disks that run full after a clone or a snapshot."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.torture.damage import clones


@pytest.mark.crash
@pytest.mark.guarantee("G92")
@pytest.mark.sweep
def test_a_full_disk_after_a_clone_ends_no_process_and_loses_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    result = clones.run(seed, 12, tmp_path)
    print(result)
    if result.skipped:
        pytest.skip(result.skipped)
    assert result.problems == []
    assert result.figures["sends refused"]
