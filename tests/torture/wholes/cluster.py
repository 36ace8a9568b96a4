"""Workers and brokers of real clusters, killed under load: so many rounds of each, half of them on each release."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.interop.cluster.clusters import Cluster, started_cluster
from tests.interop.cluster.kills.campaign import Campaign
from tests.interop.cluster.kills.campaign import run as run_campaign
from tests.interop.cluster.kills.judging import figures, judge
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, why_not
from tests.torture.result import Result, Rig

CLAIM = (
    "On a RocketMQ cluster, kill -9 of workers and of brokers under load loses no message and invents none; each queue "
    "keeps its order; what is handled again was handled in the seconds before a death."
)


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Kill workers so often, then brokers as often."""
    result = Result(CLAIM)
    if why := why_not(BROKER_4_9_7, BROKER_5_3_3):
        result.skipped = why
        return result
    for release, share in ((BROKER_4_9_7, rounds - rounds // 2), (BROKER_5_3_3, rounds // 2)):
        for what in ("worker", "broker"):
            place = scratch / f"{release}-{what}"
            with started_cluster(release, place / "cluster", name_servers=2, masters=2) as cluster:
                evidence = run_campaign(cluster.url, place / "run", seed, share, _striking(what, cluster))
            name = f"{release}, {what}s"
            other = "brokers killed" if what == "worker" else "workers killed"
            found = {figure: value for figure, value in figures(evidence).items() if figure != other}
            result.figures |= {f"{name}: {figure}": value for figure, value in found.items()}
            result.problems += [
                f"{name}: {anomaly}: {line}" for anomaly, lines in judge(evidence).items() for line in lines[:5]
            ]
            shutil.rmtree(place, ignore_errors=True)
    return result


def _striking(what: str, cluster: Cluster) -> Callable[[Campaign], None]:
    return Campaign.kill_worker if what == "worker" else lambda campaign: campaign.kill_broker(cluster)


RIG = Rig("cluster-kills", 200, run)
