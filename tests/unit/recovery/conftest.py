"""Fixtures of the recovery tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageStore, open_store
from tests.support.stores import SMALL, TOPIC, abandon, appender_of
from tests.unit.recovery.cut import BODIES, FLUSHED, MESSAGES


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Write two files of messages, the first of them below the durable mark, and die."""
    root = tmp_path / "written"
    store = open_store(root, SMALL, housekeeping=False)
    appender = appender_of(store)
    for number in range(MESSAGES):
        if number == FLUSHED:
            store.flusher.flush_thorough()
        appender.append(Message(TOPIC, BODIES[number]))
    abandon(store)
    return root


@pytest.fixture
def opened() -> Iterator[Callable[[Path], MessageStore]]:
    """Open stores, which are closed after the test."""
    stores: list[MessageStore] = []

    def open_it(root: Path) -> MessageStore:
        stores.append(open_store(root, housekeeping=False))
        return stores[-1]

    yield open_it
    for store in stores:
        store.close()
