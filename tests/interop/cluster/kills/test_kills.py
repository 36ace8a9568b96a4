"""A few rounds of the campaign; ``python -m tests.torture cluster-workers cluster-brokers`` has hundreds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient.store import open_store
from tests.interop.cluster.clusters import Cluster, started_cluster
from tests.interop.cluster.kills.campaign import Campaign, run
from tests.interop.cluster.kills.evidence import Evidence
from tests.interop.cluster.kills.judging import figures, judge
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3

ROUNDS = 3


def check(evidence: Evidence, report: list[str], what: str) -> None:
    found = figures(evidence)
    report.append(f"kills, {what}: {', '.join(f'{value} {name}' for name, value in found.items())}")
    assert judge(evidence) == {}
    assert int(found["messages sent"]) > 100


def test_killed_workers_over_a_directory(tmp_path: Path, report: list[str]) -> None:
    open_store(tmp_path / "store").close()
    check(run(str(tmp_path / "store"), tmp_path / "run", 1, ROUNDS, Campaign.kill_worker), report, "directory")


def test_killed_workers(cluster: Cluster, tmp_path: Path, report: list[str]) -> None:
    check(run(cluster.url, tmp_path, 1, ROUNDS, Campaign.kill_worker), report, cluster.java.variant)


@pytest.mark.parametrize("release", [BROKER_4_9_7, BROKER_5_3_3])
def test_killed_brokers(release: str, tmp_path: Path, report: list[str]) -> None:
    with started_cluster(release, tmp_path / "cluster", name_servers=1, masters=2) as cluster:
        strike: Callable[[Campaign], None] = lambda campaign: campaign.kill_broker(cluster)  # noqa: E731
        check(run(cluster.url, tmp_path / "run", 1, ROUNDS, strike), report, f"brokers of {release}")
