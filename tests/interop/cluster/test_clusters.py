"""The harness itself: servers that are killed are forgotten by the name servers, and come back as what they were."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.interop import rocketmq
from tests.interop.cluster.clusters import Cluster, started_cluster
from tests.interop.cluster.questions import cluster_info
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, free_broker_port
from tests.support.lines import of_kind


def test_no_two_brokers_get_a_port_of_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter((20_100, 20_100, 20_101, 20_102, 20_098, 20_110, 20_200))
    monkeypatch.setattr(random, "randrange", lambda *_: next(drawn))
    monkeypatch.setattr(rocketmq, "_is_free", lambda _: True)
    monkeypatch.setattr(rocketmq, "_given", set())
    assert [free_broker_port() for _ in range(3)] == [20_100, 20_110, 20_200]


def test_a_shared_cluster_has_two_masters(cluster: Cluster) -> None:
    for address in cluster.addresses:
        told = cluster_info(address)
        assert '"broker-a"' in told
        assert '"broker-b"' in told


@pytest.mark.parametrize("release", [BROKER_4_9_7, BROKER_5_3_3])
def test_a_server_that_was_killed_comes_back_with_its_messages(release: str, tmp_path: Path) -> None:
    with started_cluster(release, tmp_path, name_servers=2, masters=1, slaves=1) as cluster:
        master, slave = cluster.broker("broker-a"), cluster.broker("broker-a", 1)
        cluster.run("send", "before", "Kept:0:k0", "Kept:1:k1")
        master.server.kill()
        _wait_until_forgotten(cluster, master.address)
        assert all(f'"{slave.address}"' in cluster_info(address) for address in cluster.addresses)
        cluster.restart(master.server)
        found = of_kind(cluster.run("inspect", "readers", "Kept"), "message")
        assert sorted(line["queue_id"] for line in found) == [0, 1]
        cluster.name_servers[0].kill()
        with pytest.raises(OSError, match="refused"):
            cluster_info(cluster.addresses[0])
        cluster.restart(cluster.name_servers[0])
        assert f'"{master.address}"' in cluster_info(cluster.addresses[0])


def _wait_until_forgotten(cluster: Cluster, address: str) -> None:
    deadline = time.monotonic() + 30
    while any(f'"{address}"' in cluster_info(name_server) for name_server in cluster.addresses):
        assert time.monotonic() < deadline, f"{address} is still known"
        time.sleep(0.05)
