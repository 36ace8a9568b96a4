"""A few rounds of random kills of those who decide and check transactions."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.torture.kills import transactions


@pytest.mark.crash
@pytest.mark.guarantee("G31")
@pytest.mark.guarantee("G32")
def test_random_kills_leave_each_transaction_one_end(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    result = transactions.run(seed, 10, tmp_path)
    print(result)
    assert result.problems == []
    assert result.figures["kills"]
