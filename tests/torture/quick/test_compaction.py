"""Some updates of a compact topic, with kills of senders, passes and retention."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.torture.kills import compaction


@pytest.mark.crash
@pytest.mark.guarantee("G40")
@pytest.mark.sweep
def test_random_kills_leave_the_latest_value_of_every_key(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    result = compaction.run(seed, 60, tmp_path)
    print(result)
    assert result.problems == []
    assert result.figures["kills of senders"]
