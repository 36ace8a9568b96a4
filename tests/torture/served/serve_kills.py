"""``kill -9`` of the server under load: clients of it and local workers go on by themselves, and nothing is lost."""

from __future__ import annotations

import time
from pathlib import Path

from rmqclient.store import open_store
from rmqclient.testing import Server, serve
from tests.checker.history import now
from tests.interop.cluster.kills.campaign import Campaign
from tests.interop.cluster.kills.campaign import run as run_campaign
from tests.interop.cluster.kills.evidence import Fault
from tests.interop.cluster.kills.judging import figures, judge
from tests.torture.result import Result, Rig

CLAIM = (
    "kill -9 of `rmq serve` under load, and its start on the same port, loses no message that was acknowledged; its "
    "clients and the local workers of the same groups go on by themselves, and each queue keeps its order."
)

_PER_SECOND = 100.0
"""Messages of each producer; one sends into the directory and one to the server."""

_LONGEST_AWAY_S = 0.5


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Kill the server so often."""
    result = Result(CLAIM)
    root = scratch / "store"
    restarts: list[float] = []
    open_store(root).close()
    with serve(root) as server:
        evidence = run_campaign(
            str(root),
            scratch / "run",
            seed,
            rounds,
            lambda campaign: restarts.append(kill_server(campaign, server)),
            (str(root), server.url),
            _PER_SECOND,
        )
    found = figures(evidence) | {"servers killed": len(restarts)}
    result.figures |= {figure: found[figure] for figure in found if figure not in {"workers killed", "brokers killed"}}
    result.figures["median restart in ms"] = round(sorted(restarts)[len(restarts) // 2] * 1000)
    result.figures["longest restart in ms"] = round(max(restarts) * 1000)
    result.problems += [f"{anomaly}: {line}" for anomaly, lines in judge(evidence).items() for line in lines[:5]]
    return result


def kill_server(campaign: Campaign, server: Server) -> float:
    """Kill the server, and start it again on its port; return how many seconds the start took."""
    at = now()
    server.kill()
    time.sleep(campaign.random.uniform(0.0, _LONGEST_AWAY_S))
    begun = time.monotonic()
    server.start()
    took_s = time.monotonic() - begun
    campaign.faults.append(Fault("broker", at, now()))
    return took_s


RIG = Rig("serve-kills", 1000, run)
