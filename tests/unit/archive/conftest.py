"""Fixtures of the archive tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.store import MessageStore, open_store
from tests.support.archived import more
from tests.support.written import SMALL


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return where the store stands."""
    return tmp_path / "store"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Return where the archive stands."""
    return tmp_path / "archive"


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    """Open a store with some files of messages."""
    with open_store(root, SMALL, housekeeping=False) as opened:
        more(opened)
        yield opened
