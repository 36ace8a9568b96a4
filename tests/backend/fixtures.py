"""Fixtures: the backends that tests of behaviour run on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.backend import Backend
from rmqclient.opening import open_backend
from tests.backend.in_memory import in_memory_backend


@pytest.fixture(params=["local", "in memory"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """A store of this host, and then messages in memory."""
    opened = open_backend(tmp_path / "store") if request.param == "local" else in_memory_backend()
    try:
        yield opened
    finally:
        opened.close()
