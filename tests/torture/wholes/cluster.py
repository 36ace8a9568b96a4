"""Workers and brokers of real clusters, killed under load: so many rounds of each, half of them on each release."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.interop.cluster.clusters import Cluster, started_cluster
from tests.interop.cluster.kills.campaign import Campaign
from tests.interop.cluster.kills.campaign import run as run_campaign
from tests.interop.cluster.kills.judging import figures, judge
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, why_not
from tests.torture.result import Result, Rig

CLAIM = (
    "On a RocketMQ cluster, kill -9 of {what}s under load loses no message and invents none; each queue keeps its "
    "order; what is handled again was handled in the seconds before a death."
)

_AT_ONCE = 25
"""Kills of one campaign, after which everything must be handled; a campaign that fails leaves the others."""

_GREATEST = "most repeats of one message"
"""The one figure of campaigns that is not a sum."""


def run(what: str, seed: int, rounds: int, scratch: Path) -> Result:
    """Kill a ``worker`` or a ``broker`` so often. What a campaign wrote down is kept if it went wrong."""
    result = Result(CLAIM.format(what=what))
    if why := why_not(BROKER_4_9_7, BROKER_5_3_3):
        result.skipped = why
        return result
    for release, share in ((BROKER_4_9_7, rounds - rounds // 2), (BROKER_5_3_3, rounds // 2)):
        for number, kills in enumerate(_divided(share)):
            _campaign(result, release, what, seed + number, kills, scratch / f"{release}-{number}")
    return result


def _campaign(result: Result, release: str, what: str, seed: int, kills: int, place: Path) -> None:
    """Run one campaign on a cluster of its own, and add what it found."""
    try:
        with started_cluster(release, place / "cluster", name_servers=2, masters=2) as cluster:
            evidence = run_campaign(cluster.url, place / "run", seed, kills, _striking(what, cluster))
    except Exception as error:  # noqa: BLE001 - the other campaigns are worth their hours
        result.problems.append(f"{release}, seed {seed}: {type(error).__name__}: {error}")
        return
    other = "brokers killed" if what == "worker" else "workers killed"
    for figure, value in figures(evidence).items():
        if figure != other:
            before = int(result.figures.get(name := f"{release}: {figure}", 0))
            result.figures[name] = max(before, int(value)) if figure == _GREATEST else before + int(value)
    anomalies = judge(evidence)
    print(f"{release}, seed {seed}: {kills} kills, {'; '.join(anomalies) or 'nothing wrong'}", flush=True)
    result.problems += [
        f"{release}, seed {seed}: {anomaly}: {line}" for anomaly, lines in anomalies.items() for line in lines[:5]
    ]
    if not anomalies:
        shutil.rmtree(place, ignore_errors=True)


def _divided(kills: int) -> Iterator[int]:
    while kills > 0:
        yield min(kills, _AT_ONCE)
        kills -= _AT_ONCE


def _striking(what: str, cluster: Cluster) -> Callable[[Campaign], None]:
    return Campaign.kill_worker if what == "worker" else lambda campaign: campaign.kill_broker(cluster)


WORKERS = Rig("cluster-workers", 200, partial(run, "worker"))
BROKERS = Rig("cluster-brokers", 200, partial(run, "broker"))
