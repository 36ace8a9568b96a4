"""Fixtures of the crash tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqclient.databases.database import Connection
from rmqclient.store import Message, MessageStore, open_store
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.scenarios.databases import connector_beside
from tests.support.host.once import Once
from tests.support.postgres import postgres, why_not
from tests.support.stores import SMALL, TOPIC, appender_of
from tests.support.sweeps import in_turns

HERE = Path(__file__).parent
MEMORY = Path("/dev/shm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a quick run let the places of kills take turns with the databases."""
    in_turns("connect", (item for item in items if item.path.is_relative_to(HERE)))


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Where children come from."""
    with Nursery() as started:
        yield started


@pytest.fixture(autouse=True)
def _nothing_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make no disk work in this process: a kill loses nothing that the page cache has, and disks are slow."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """Use memory where there is enough: a kill does not lose what the page cache has, so a disk proves nothing more."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < 512 << 20:
        yield tmp_path
    else:
        with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
            yield Path(directory)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return where the store stands; what children say stands beside it."""
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    """Open a store, in this process, with one flushed message of no test in it; whoever dies, this process stays."""
    with open_store(root, SMALL, housekeeping=False) as opened:
        appender_of(opened).append(Message(TOPIC, b"first"))
        opened.flusher.flush_thorough()
        yield opened


@pytest.fixture(scope="session")
def server(once: Once) -> Iterator[str]:
    """Run a PostgreSQL; return what to connect to."""
    with postgres(once) as name:
        yield name


@pytest.fixture(params=["sqlite", "postgresql"])
def connect(request: pytest.FixtureRequest, root: Path) -> Callable[[], Connection]:
    """Return what opens a database beside the store."""
    if request.param == "postgresql":
        if (missing := why_not()) is not None:
            pytest.skip(missing)
        root.with_name("database").write_text(request.getfixturevalue("server"), encoding="ascii")
    return connector_beside(root)
