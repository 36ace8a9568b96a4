"""Some kills of senders and consumers, whose groups count what became of each message."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.torture.kills import counters


@pytest.mark.crash
@pytest.mark.guarantee("G50")
def test_random_kills_leave_counters_that_count_each_message_once(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    result = counters.run(seed, 12, tmp_path)
    print(result)
    assert result.problems == []
    assert result.figures["kills of consumers"]
