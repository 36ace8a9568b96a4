"""Fixtures of the recovery tests: a closed store that each test copies, and what stands in it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recovery.scenes import WAYS, Written, closed_store
from tests.support.oracle import reference
from tests.support.sweeps import in_turns

HERE = Path(__file__).parent
MEMORY = Path("/dev/shm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a quick run let the damages take turns with the ways in which a store was left."""
    in_turns("way", (item for item in items if item.path.is_relative_to(HERE)))


@pytest.fixture(autouse=True)
def _nothing_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make no disk work: nobody cuts the power here, and disks are slow."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Use memory where there is enough."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < 256 << 20:
        yield tmp_path_factory.mktemp("recovery")
    else:
        with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
            yield Path(directory)


@pytest.fixture(scope="session")
def original(directory: Path) -> Path:
    """Return a closed store; it is only copied."""
    return closed_store(directory / "original")


@pytest.fixture(scope="session")
def written(original: Path) -> Written:
    return reference.read_commit_log(original)


@pytest.fixture
def target(directory: Path) -> Iterator[Path]:
    """Return where a copy may stand."""
    path = Path(tempfile.mkdtemp(dir=directory)) / "store"
    yield path
    shutil.rmtree(path.parent)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)
