"""``mqadmin`` prints on our server what it prints on a real broker, line by line, or there is a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqclient.testing import serve
from tests.interop.cluster.clusters import started_cluster
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, why_not
from tests.interop.tools.comparison import differences, reason_of
from tests.interop.tools.reasons import REASONS
from tests.interop.tools.scenario import printed_by
from tests.interop.tools.tools import Tools

RELEASES = (BROKER_4_9_7, BROKER_5_3_3)

pytestmark = pytest.mark.skipif(bool(reason := why_not(*RELEASES)), reason=reason)


@pytest.fixture(autouse=True)
def state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQ_STATE_DIR", str(tmp_path / "state"))


@pytest.mark.parametrize("release", RELEASES)
def test_mqadmin_prints_what_it_prints_on_a_real_broker(release: str, tmp_path: Path, report: list[str]) -> None:
    with started_cluster(release, tmp_path / "cluster", name_servers=1, masters=1) as cluster:
        address = cluster.addresses[0]
        with Tools(release, tmp_path / "theirs", address) as tools:
            theirs = printed_by(tools, release, address, cluster.brokers[0].address)
    with serve() as server, Tools(release, tmp_path / "ours", server.address) as tools:
        ours = printed_by(tools, release, server.address, server.address)
    found = differences(ours, theirs)
    explained = [each for each in found if reason_of(each, release, REASONS)]
    report.append(f"mqadmin {release}: {len(ours)} commands, {len(explained)} lines differ for a listed reason")
    assert not [str(each) for each in found if each not in explained]
    assert len(ours) > 40
