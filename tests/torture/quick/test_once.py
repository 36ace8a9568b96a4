"""A few rounds of random kills of those who send by key."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.torture.kills import once


@pytest.mark.crash
@pytest.mark.guarantee("G43")
@pytest.mark.sweep
def test_random_kills_leave_each_key_sent_once(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    result = once.run(seed, 10, tmp_path)
    print(result)
    assert result.problems == []
    assert result.figures["kills"]
