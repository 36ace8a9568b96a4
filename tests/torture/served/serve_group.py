"""One group of local workers and remote members over a served store, killed at random: so many deaths."""

from __future__ import annotations

import time
from functools import partial
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
    "In a group of local workers and of clients of `rmq serve`, kill -9 of either and of the server under load loses "
    "no message; no ordered queue is with two members at a time, and each keeps its order; what is handled again was "
    "handled in the seconds before a death."
)

_PER_SECOND = 250.0
"""Messages of each producer; one sends into the directory and one to the server."""


_SERVERS = 0.15
"""Part of the deaths that are the server's."""


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Kill so many processes: workers, half of them local and half remote, and now and then the server."""
    result = Result(CLAIM)
    root = scratch / "store"
    open_store(root).close()
    with serve(root) as server:
        evidence = run_campaign(
            str(root), scratch / "run", seed, rounds, partial(_strike, server), (str(root), server.url), _PER_SECOND
        )
        if not server.is_running:
            result.problems.append(f"the server ended by itself:\n{server.log[-3000:]}")
    result.figures |= {figure.replace("brokers", "servers"): value for figure, value in figures(evidence).items()}
    result.problems += [f"{anomaly}: {line}" for anomaly, lines in judge(evidence).items() for line in lines[:5]]
    return result


def _strike(server: Server, campaign: Campaign) -> None:
    if campaign.random.random() >= _SERVERS:
        campaign.kill_worker()
        return
    at = now()
    server.kill()
    time.sleep(campaign.random.uniform(0.0, 2.0))
    server.start()
    campaign.faults.append(Fault("broker", at, now()))


RIG = Rig("serve-group", 200, run)
