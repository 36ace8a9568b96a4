"""Limits of a process: a sender is told which one it met, a consumer tries again, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.limited import SCENARIOS
from tests.support.oracle import reference

TOP = Path(__file__).parents[2]


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_limit_is_named_and_nothing_is_lost(tmp_path: Path, scenario: str) -> None:
    root = tmp_path / "store"
    command = [sys.executable, "-m", "tests.client.limited", scenario, str(root)]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert reference.check_store(root) == []
