"""A round of random kills in the middle of durable steps."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.torture.steps import steps


@pytest.mark.crash
@pytest.mark.guarantee("G63", "G65")
def test_random_kills_run_no_finished_step_again(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    result = steps.run(seed, 1, tmp_path)
    print(result)
    assert result.problems == []
    assert result.figures["kills"]


def test_a_step_that_runs_again_and_a_result_that_changes_are_noticed(tmp_path: Path) -> None:
    lines = [["ran", "1", "charge"], ["returned", "1", "charge", "a"], ["ran", "1", "charge"]]
    lines += [["returned", "1", "charge", "b"], ["signalled", "2", "no"], ["done", "1"]]
    assert [problem.split(" of message ")[0] for problem in steps.of_lines(lines)] == [
        "step charge",
        "step charge",
        "message 2 was told ['no']",
        f"messages were never finished: {sorted({str(number) for number in range(steps.MESSAGES)} - {'1'})}",
    ]
