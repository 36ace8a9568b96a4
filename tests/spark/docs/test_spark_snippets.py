"""The Python of a page that needs Spark runs in the session of the tests, on a store in a directory of its own.

The Java of the session has the directory in which it was started, so a path that begins with ``./`` is made absolute.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.needs import Case, Provided, case_id, cases_with_spark, provided, skip_without
from tests.docs.page import program_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("case", cases_with_spark(), ids=case_id)
def test_the_blocks_run_with_spark(
    spark: SparkSession, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, needs = case
    skip_without(needs)
    monkeypatch.chdir(tmp_path)
    paths = Provided(texts={'"./': f'"{tmp_path}/', '"/home/rocketmq/': f'"{tmp_path}/'})
    with provided(needs, tmp_path) as given:
        for name, value in given.variables.items():
            monkeypatch.setenv(name, value)
        program = tmp_path / page.name
        text = paths.into(given.into(page.read_text(encoding="utf-8")))
        program.write_text(program_of(text, needs), encoding="utf-8")
        runpy.run_path(str(program), run_name="__main__")
    assert spark.streams.active == []
