"""The Python of a page runs, from its first block to its last, as one program in an empty directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.page import PAGES, REPOSITORY, blocks_of, program_of
from tests.docs.programs import Programs

PAGE = """\
<!-- before
a = 1
-->
```python
b = a
```
<!-- run with c, d -->
```python
c
```
<!-- a session -->
```python
# d.py
```
<!-- the session ends -->
```python
print(b)
```
"""

TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
PYTHON_PAGES = [page for page, text in TEXTS.items() if blocks_of(text)]


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    with Programs() as started:
        yield started


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_the_blocks_of_a_page_run(programs: Programs, page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for block in blocks_of(text):
        compile("\n" * (block.line - 1) + block.text, page, "exec")
    if not (program := program_of(text)).strip():
        return
    (tmp_path / page.name).write_text(program, encoding="utf-8")
    status, said = programs.run(tmp_path / page.name)
    assert status == 0, said


def test_a_program_that_fails_or_warns_is_noticed(programs: Programs, tmp_path: Path) -> None:
    program = tmp_path / "page.md"
    for text, told in (("\n1 / 0", 'page.md", line 2'), ("import warnings; warnings.warn('old')", "UserWarning: old")):
        program.write_text(text, encoding="utf-8")
        status, said = programs.run(program)
        assert status == 1
        assert told in said


def test_a_page_is_one_program_whose_lines_have_their_numbers() -> None:
    found = [(block.line, sorted(block.needs)) for block in blocks_of(PAGE)]
    assert found == [(2, []), (5, []), (9, ["c", "d"]), (17, [])]
    assert program_of(PAGE).splitlines() == ["", "a = 1", "", "", "b = a", *[""] * 11, "print(b)"]
    assert program_of(PAGE, frozenset("cd")).splitlines()[6:9] == ["", "", "c"]
