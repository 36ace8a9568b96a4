"""Fixtures of tests of one part: a small store, and what appends to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.store import MessageStore, open_store
from rmqclient.store.kernel._kernel import Appender
from tests.support.stores import SMALL, appender_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Open an empty store of small files, without a housekeeper."""
    with open_store(tmp_path / "store", SMALL, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def appender(store: MessageStore) -> Appender:
    """Return an appender of the store."""
    return appender_of(store)
