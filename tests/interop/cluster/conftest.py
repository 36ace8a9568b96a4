"""Clusters that the tests of a run share, and names that no other test has.

A server of RocketMQ takes seconds to start, so tests share a cluster of each release and keep apart by their names.
Only a test that kills a server starts a cluster of its own. ``RMQ_TEST_CLUSTER_4_9_7=127.0.0.1:9876`` and
``RMQ_TEST_CLUSTER_5_3_3`` name clusters that run already; the tests then take those.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.interop.cluster.clusters import Cluster, running_cluster, started_cluster
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3

RELEASES = (BROKER_4_9_7, BROKER_5_3_3)


@pytest.fixture(scope="session")
def shared_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Cluster]]:
    """Return what gives the shared cluster of a release; it is started when it is asked for first."""
    found: dict[str, Cluster] = {}
    with ExitStack() as stack:

        def of(release: str) -> Cluster:
            if release not in found:
                scratch = tmp_path_factory.mktemp(release)
                address = os.environ.get(variable_of(release))
                found[release] = (
                    running_cluster(release, address, scratch)
                    if address
                    else stack.enter_context(started_cluster(release, scratch, name_servers=2, masters=2))
                )
            return found[release]

        yield of


def variable_of(release: str) -> str:
    """Return the environment variable that names a running cluster of a release."""
    return f"RMQ_TEST_CLUSTER_{release.rpartition('-')[2].replace('.', '_')}"


@pytest.fixture(params=RELEASES)
def cluster(request: pytest.FixtureRequest, shared_clusters: Callable[[str], Cluster]) -> Cluster:
    """The shared cluster of each release, one after the other."""
    return shared_clusters(request.param)


@pytest.fixture
def name() -> Callable[[str], str]:
    """Return what makes a name of a topic or a group unique: ``name("Orders")``, always the same within a test."""
    mark = uuid.uuid4().hex[:8]
    return lambda stem: f"{stem}-{mark}"
