"""The page of all requests says what the table says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.page import page

REPOSITORY = Path(__file__).parents[2]


def test_the_page_in_the_documentation_is_the_one_that_the_table_makes() -> None:
    shown = (REPOSITORY / "docs" / "remoting.md").read_text(encoding="utf-8")
    assert shown == page(), "run python -m rmqclient.remoting.page > docs/remoting.md"


def test_the_module_prints_the_page() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "rmqclient.remoting.page"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert printed.stdout == page()


def test_a_row_has_the_short_names_the_marks_and_the_types() -> None:
    (row,) = (line for line in page().splitlines() if line.startswith(f"| {RequestCode.SEND_MESSAGE_V2} |"))
    assert "`e`=`queueId`! i" in row
    assert "`i`=`properties` s" in row
