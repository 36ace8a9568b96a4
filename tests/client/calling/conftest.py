"""The places that a handler may take messages from: a directory, messages in memory, a server by its URL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.opening import Place
from rmqclient.testing import Server, serve
from tests.backend.in_memory import in_memory_backend


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One server for all tests of this folder: each test has topics and groups of its own."""
    with serve() as started:
        yield started


@pytest.fixture(params=["directory", "in memory", "url"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """What names a backend: a directory, a backend, the URL of a server."""
    if request.param == "in memory":
        return in_memory_backend()
    if request.param == "url":
        server: Server = request.getfixturevalue("server")
        return server.url
    return str(tmp_path / "store")


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic of this test alone; its group may have the same name."""
    return f"t-{abs(hash(request.node.nodeid)) % 10**12}"
