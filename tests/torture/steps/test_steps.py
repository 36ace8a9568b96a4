"""A round of random kills in the middle of durable steps."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.torture.steps import steps


@pytest.mark.crash
@pytest.mark.guarantee("G63", "G65")
def test_random_kills_run_no_finished_step_again(tmp_path: Path) -> None:
    for attempt in range(3):  # on a busy machine a round may end before its kill
        seed, scratch = random.randrange(1 << 32), tmp_path / str(attempt)
        print(f"seed {seed}")
        scratch.mkdir()
        result = steps.run(seed, 1, scratch)
        print(result)
        assert result.problems == []
        if result.figures.get("kills"):
            return
    pytest.fail("no worker was killed in three rounds")


def test_a_step_that_runs_again_and_a_result_that_changes_are_noticed(tmp_path: Path) -> None:
    lines = [["ran", "1", "charge"], ["returned", "1", "charge", "a"], ["ran", "1", "charge"]]
    lines += [["returned", "1", "charge", "b"], ["signalled", "2", "no"], ["done", "1"]]
    assert [problem.split(" of message ")[0] for problem in steps.of_lines(lines)] == [
        "step charge",
        "step charge",
        "message 2 was told ['no']",
        f"messages were never finished: {sorted({str(number) for number in range(steps.MESSAGES)} - {'1'})}",
    ]
