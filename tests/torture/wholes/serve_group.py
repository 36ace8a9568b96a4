"""One group of local workers and remote members over a served store, killed at random: so many deaths."""

from __future__ import annotations

from pathlib import Path

from rmqclient.store import open_store
from rmqclient.testing import serve
from tests.interop.cluster.kills.campaign import Campaign
from tests.interop.cluster.kills.campaign import run as run_campaign
from tests.interop.cluster.kills.judging import figures, judge
from tests.torture.result import Result, Rig

CLAIM = (
    "In a group of local workers and of clients of `rmq serve`, kill -9 of either under load loses no message; no "
    "queue is with two members at a time, and each keeps its order; what is handled again was handled in the seconds "
    "before a death."
)

_PER_SECOND = 250.0
"""Messages of each producer; one sends into the directory and one to the server."""


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Kill so many workers, half of them local and half remote."""
    result = Result(CLAIM)
    root = scratch / "store"
    open_store(root).close()
    with serve(root) as server:
        evidence = run_campaign(
            str(root), scratch / "run", seed, rounds, Campaign.kill_worker, (str(root), server.url), _PER_SECOND
        )
        if not server.is_running:
            result.problems.append(f"the server ended by itself:\n{server.log[-3000:]}")
    result.figures |= {figure: value for figure, value in figures(evidence).items() if figure != "brokers killed"}
    result.problems += [f"{anomaly}: {line}" for anomaly, lines in judge(evidence).items() for line in lines[:5]]
    return result


RIG = Rig("serve-group", 200, run)
