"""The Python of a page that needs more than this package runs, too, where that can be had; no block is left out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.needs import (
    MODULES,
    NOTEBOOK,
    PYTEST,
    Case,
    Provided,
    case_id,
    cases_without_spark,
    provided,
    skip_without,
)
from tests.docs.page import PAGES, REPOSITORY, blocks_of, program_of
from tests.docs.programs import Programs
from tests.docs.test_snippets import test_the_blocks_of_a_page_run as the_blocks_of_a_page_run
from tests.spark.docs.test_spark_snippets import test_the_blocks_run_with_spark as the_blocks_run_with_spark
from tests.support.host.notebooks import started_kernel

LONG_S = 120


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    with Programs() as started:
        yield started


@pytest.mark.parametrize("case", cases_without_spark(), ids=case_id)
def test_the_blocks_run_with_what_their_marks_say(programs: Programs, case: Case, tmp_path: Path) -> None:
    page, needs = case
    skip_without(needs)
    with provided(needs, tmp_path) as given:
        text = given.into(page.read_text(encoding="utf-8"))
        if NOTEBOOK in needs:
            run_as_cells(text, needs, tmp_path)
        elif PYTEST in needs:
            run_as_tests(program_of(text, needs), tmp_path)
        else:
            program = tmp_path / page.name
            program.write_text(program_of(text, needs), encoding="utf-8")
            status, said = programs.run(program, given.variables)
            assert status == 0, said


def run_as_cells(page: str, needs: frozenset[str], directory: Path) -> None:
    with started_kernel(directory) as kernel:
        for block in blocks_of(page):
            if block.needs <= needs:
                kernel.run(block.text)


def run_as_tests(program: str, directory: Path) -> None:
    (directory / "test_page.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_page.py"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_a_test_runs_each_block(page: Path) -> None:
    ran = [
        *((page, frozenset[str]()) for page in parameters_of(the_blocks_of_a_page_run)),
        *parameters_of(test_the_blocks_run_with_what_their_marks_say),
        *parameters_of(the_blocks_run_with_spark),
    ]
    for block in blocks_of(page.read_text(encoding="utf-8")):
        where = f"{page.name}:{block.line}"
        assert block.needs <= MODULES.keys(), f"{where}: unknown marks: {sorted(block.needs - MODULES.keys())}"
        assert any(page == its and block.needs <= needs for its, needs in ran), f"{where} runs in no test"


def parameters_of(test: Callable[..., None]) -> list[Any]:
    """Return what pytest runs a test with."""
    marks: list[pytest.Mark] = vars(test)["pytestmark"]
    return [parameter for mark in marks if mark.name == "parametrize" for parameter in mark.args[1]]


def test_a_mark_that_nobody_knows_is_a_need_that_nobody_meets() -> None:
    for mark in ("not run: it needs Spark", "runs with Spark", "run with spark"):
        (block,) = blocks_of(f"<!-- {mark} -->\n```python\na\n```\n")
        assert not block.needs <= MODULES.keys()


def test_a_program_finds_what_is_provided_in_the_place_of_its_own_texts() -> None:
    given = Provided(texts={"host:9876": "127.0.0.1:41523"})
    assert given.into('Producer("rocketmq://host:9876")') == 'Producer("rocketmq://127.0.0.1:41523")'
