"""Fixtures of the tests of flushing: a store whose sends are durable, a second handle of it, and its disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import Producer
from rmqclient.store import MessageStore, open_store
from tests.unit.upkeep.flushing.flushed import SYNC, Disk


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Open a store of durable sends, with a topic."""
    with open_store(tmp_path / "store", SYNC, housekeeping=False) as opened:
        with Producer(opened, config=SYNC) as producer:
            producer.create_topic("t", 1)
        yield opened


@pytest.fixture
def other(store: MessageStore) -> Iterator[MessageStore]:
    """The same store as another process has it open."""
    with open_store(store.root, SYNC, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def disk(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)
