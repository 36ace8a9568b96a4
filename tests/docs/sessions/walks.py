"""Walks: the pages that are followed from an empty directory, and what each of them cannot do without."""

from __future__ import annotations

import importlib.util
import shutil

import pytest

from tests.docs.page import PAGES, REPOSITORY, needs_of, session_of

WALKS = {
    page.relative_to(REPOSITORY).as_posix(): page
    for page in PAGES
    if session_of(page.read_text(encoding="utf-8")) is not None
}


def skip_without(page: str) -> None:
    """Leave out the test of a page that needs what this environment has not."""
    missing = [name for name in needs_of(page) if importlib.util.find_spec(name) is None and not shutil.which(name)]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: make install-all brings packages")
