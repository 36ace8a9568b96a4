"""A reader who copies a page, block by block, sees what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.page import PAGES, REPOSITORY
from tests.docs.session import SESSION, Command, environment_of, follow, matches, run, steps_of

SESSIONS = [page for page in PAGES if SESSION in page.read_text(encoding="utf-8").splitlines()]


def test_there_is_a_session() -> None:
    assert SESSIONS


@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_a_page_can_be_copied_into_an_empty_directory(page: Path, tmp_path: Path) -> None:
    follow(steps_of(page.read_text(encoding="utf-8")), tmp_path, environment_of(REPOSITORY))


def test_an_ellipsis_stands_for_the_rest_of_a_line_or_for_lines() -> None:
    assert matches(Command("", "sent 7F...\n...\nend\n", False), "head\nsent 7F00\nbetween\nend\n")
    assert not matches(Command("", "sent 7F...\nend\n", False), "sent 7F00\nbetween\nend\n")
    assert matches(Command("", "first\nsecond\n", True), "second\nbetween\nfirst\n")
    assert not matches(Command("", "first\nsecond\n", True), "second\n")


def test_a_session_stops_where_the_page_says_something_else(tmp_path: Path) -> None:
    (step,) = steps_of("```console\n$ echo one\ntwo\n```\n")
    assert isinstance(step, Command)
    with pytest.raises(AssertionError, match="and the page says\ntwo"):
        run(step, tmp_path, environment_of(REPOSITORY))
