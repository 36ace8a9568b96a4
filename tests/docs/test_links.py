"""A link of a page leads to a file and a heading that are there; the index of the documentation has every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.page import PAGES, REPOSITORY, headings_of, links_of
from tests.test_architecture import FOLDERS, sources_of

DOCS = REPOSITORY / "docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links_of(page.read_text(encoding="utf-8")):
        name, _, heading = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link} is not there"
        if heading:
            assert heading in headings_of(target.read_text(encoding="utf-8")), f"{link}: no such heading"


def test_the_index_has_every_page_that_is_not_a_decision() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    linked = {(DOCS / link).resolve() for link in links_of(index)}
    pages = {page for page in DOCS.rglob("*.md") if page.parent.name != "decisions" and page != DOCS / "README.md"}
    assert pages <= linked


def test_the_index_of_the_decisions_has_every_decision_with_its_title() -> None:
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    for page in (DOCS / "decisions").glob("0*.md"):
        number, _, title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ").partition(". ")
        assert int(number) == int(page.name[:4])
        assert f"{number}. [{title}]({page.name})" in index


@pytest.mark.parametrize("package", FOLDERS)
def test_the_architecture_names_every_room(package: str) -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    _, _, section = page.partition(f"### `{package}/`")
    named = "".join(re.findall(r"```\n.*?```|`[^`\n]+`", section.split("\n## ")[0].split("\n### ")[0], re.DOTALL))
    rooms = {path.parent.name for path in sources_of(package)} - {package}
    files = {path.stem for path in FOLDERS[package].glob("*.py") if not path.stem.startswith("__")}
    assert (rooms | files) - set(re.findall(r"\w+", named)) == set()
