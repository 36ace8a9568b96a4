"""Each line of docs/results/complaints.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
ROWS = [
    line
    for line in (REPOSITORY / "docs" / "results" / "complaints.md").read_text().splitlines()
    if re.match(r"\| \d+\. ", line)
]


def test_the_page_has_complaints() -> None:
    assert ROWS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split(".")[0].strip("| "))
def test_a_complaint_names_tests_that_exist(row: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row)
    assert named
    for path, test in named:
        assert f"def {test}" in (REPOSITORY / path).read_text()
