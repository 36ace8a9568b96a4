"""The Python of a page runs, from its first block to its last, as one program in an empty directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.page import PAGES, REPOSITORY, blocks_of, program_of
from tests.docs.session import SESSION

PAGE = """\
<!-- before
a = 1
-->
```python
b = a
```
<!-- not run: no c -->
```python
c
```
```python
print(b)
```
"""

TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
PYTHON_PAGES = [page for page, text in TEXTS.items() if blocks_of(text) and SESSION not in text]


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for block in blocks_of(text):
        compile("\n" * (block.line - 1) + block.text, page, "exec")
    if not (program := program_of(text)).strip():
        return
    (tmp_path / page.name).write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", page.name],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_page_is_one_program_whose_lines_have_their_numbers() -> None:
    assert [(block.line, block.is_run) for block in blocks_of(PAGE)] == [(2, True), (5, True), (9, False), (12, True)]
    assert program_of(PAGE).splitlines() == ["", "a = 1", "", "", "b = a", "", "", "", "", "", "", "print(b)"]
