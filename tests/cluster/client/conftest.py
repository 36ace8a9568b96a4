"""Clients of scripted clusters, which leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.client.client import ClusterClient
from tests.support.cluster.leftovers import nothing_left_behind


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left_behind():
        yield


@contextmanager
def client_of(*hosts: str, rest: str = "?timeout=20") -> Iterator[ClusterClient]:
    """Open a client for the length of a block; ``rest`` is what stands behind the hosts of its URL."""
    client = ClusterClient(ClusterURL.parse(f"rocketmq://{','.join(hosts)}{rest}"))
    try:
        yield client
    finally:
        client.close()
