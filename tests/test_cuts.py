"""Each line of docs/results/cuts.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
ROWS = [
    line
    for line in (REPOSITORY / "docs" / "results" / "cuts.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d+\. ", line)
]


def test_there_are_27_in_their_order() -> None:
    assert [int(row.split(".")[0].strip("| ")) for row in ROWS] == list(range(1, 28))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split(".")[0].strip("| "))
def test_a_cut_names_tests_that_exist(row: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row)
    assert named
    for path, test in named:
        assert f"def {test}" in (REPOSITORY / path).read_text(encoding="utf-8")


def test_what_is_open_is_counted_and_says_why() -> None:
    assert sum("Open:" in row for row in ROWS) == 2, "the page says how many"
    for row in ROWS:
        if "Open:" in row:
            assert re.search(r"Open: [^|]*(because|, so) ", row), row
