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


def test_the_page_has_cuts() -> None:
    assert ROWS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split(".")[0].strip("| "))
def test_a_cut_names_tests_that_exist(row: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row)
    assert named
    for path, test in named:
        assert f"def {test}" in (REPOSITORY / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("row", [row for row in ROWS if "Open:" in row], ids=lambda row: row.split(".")[0].strip("| "))
def test_an_open_cut_says_why(row: str) -> None:
    assert re.search(r"Open: [^|]*(because|, so) ", row)
