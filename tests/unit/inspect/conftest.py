"""Fixtures of the tests that look at a store as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.written import written_store


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a written store that no test changes."""
    return written_store(tmp_path_factory.mktemp("written") / "store")
