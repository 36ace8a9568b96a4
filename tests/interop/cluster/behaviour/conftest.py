"""The places that every test of this folder runs at."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqclient import StoreConfig, TransactionConfig
from rmqclient.store import open_store
from rmqclient.testing import Server, serve
from tests.interop.cluster.behaviour.place import CLUSTERS, SERVE, STORE, Place
from tests.interop.cluster.clusters import Cluster

CONFIG = StoreConfig(transactions=TransactionConfig(timeout_ms=2_000, check_interval_ms=500))
"""Of the housekeeper of a directory: it asks about undecided transactions as soon as the brokers of the tests do."""


@contextmanager
def serving(root: Path) -> Iterator[Server]:
    """Run a server over a directory that this process keeps house of, with short times."""
    with open_store(root, CONFIG), serve(root) as server:
        yield server


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that the tests of a run share."""
    with serving(tmp_path_factory.mktemp("served") / "store") as server:
        yield server


@pytest.fixture(params=[STORE, SERVE, *CLUSTERS])
def place(
    request: pytest.FixtureRequest,
    shared_clusters: Callable[[str], Cluster],
    served: Server,
    tmp_path: Path,
    report: list[str],
) -> Iterator[Place]:
    """A directory of this test alone, then the shared server, then the shared cluster of each release."""
    kind, mark = request.param, uuid.uuid4().hex[:8]
    if kind == STORE:
        with open_store(tmp_path / "store", CONFIG):  # the first who opens it is the housekeeper
            yield Place(kind, str(tmp_path / "store"), mark, report)
    elif kind == SERVE:
        yield Place(kind, served.url, mark, report)
    else:
        yield Place(kind, shared_clusters(kind).url, mark, report)
