"""The one place of these tests."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from rmqclient.testing import Server
from tests.interop.cluster.behaviour.conftest import serving
from tests.interop.cluster.behaviour.place import SERVE, Place


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that the tests of a file share."""
    with serving(tmp_path_factory.mktemp("served") / "store") as server:
        yield server


@pytest.fixture
def place(served: Server) -> Place:
    """The server, with names that no other test has."""
    return Place(SERVE, served.url, uuid.uuid4().hex[:8], [])
