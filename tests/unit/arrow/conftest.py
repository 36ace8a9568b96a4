"""Fixtures of the tests of batches: a written store, and what the oracle reads there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.oracle import reference
from tests.support.written import copy_with_runtime_file, written_store
from tests.unit.arrow.read_rows import Rows, row_of


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a written store that no test changes."""
    return written_store(tmp_path_factory.mktemp("batches") / "store")


@pytest.fixture
def root(original: Path, tmp_path: Path) -> Path:
    """Return a copy of the written store."""
    return copy_with_runtime_file(original, tmp_path / "store")


@pytest.fixture
def expected(root: Path) -> Rows:
    """Return the rows of the store, as the oracle reads them."""
    return Rows(row_of(record) for _, record in reference.read_commit_log(root))
