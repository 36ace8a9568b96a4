"""Page: ``docs/results/scaling.md``, from what a run came to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.machine import REPOSITORY
from benchmarks.scaling.scenarios import Outcome
from rmqclient.cluster.client.heartbeats import INTERVAL_S
from rmqclient.cluster.client.routes import FRESH_S
from rmqclient.cluster.groups.locks import RENEW_EVERY_S
from rmqclient.cluster.groups.members import LOOK_EVERY_S

PAGE = REPOSITORY / "docs" / "results" / "scaling.md"
RESULTS = REPOSITORY / "benchmarks" / "results" / "scaling"

_HEAD = """\
# How a group on a cluster settles

Written by `python -m benchmarks.scaling`: a simulation of one group with one topic on many brokers. Of each member the
real rebalance runs, with the real allocation and the real pauses; the time, the network and the brokers are a model,
whose assumptions stand in `benchmarks/scaling/cluster.py` (0.25 ms one way, 25 µs of a broker for a request, brokers
that learn of a change at the same time). A look computes the whole allocation; its time was measured here. "Settled" is
the time until the last queue has the owner that it keeps. While a queue moves nobody reads it, for some milliseconds.
"""

_SECTION = """\
## {run.title}

One allocation takes {run.compute_ms:.1f} ms.

| what happens | settled after | queues moved | requests to brokers | most to one broker |
| --- | ---: | ---: | ---: | ---: |
"""

_STEADY = f"""\
## What it costs while nothing changes

Requests a second: each member asks for the route every {FRESH_S:.0f} s, sends a heartbeat to every broker of the route
every {INTERVAL_S:.0f} s, asks who is in the group every {LOOK_EVERY_S:.0f} s, and renews its locks every
{RENEW_EVERY_S:.0f} s, in one request to each broker. Pulls and offsets come on top: one pull is held for each queue,
and each queue with messages is committed once a second.

| brokers | members | queues | routes, of all name servers | heartbeats | to one broker | who is in the group | locks |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One simulated group."""

    brokers: int
    members: int
    queues: int
    strategy: str
    compute_ms: float
    """Processor time of one allocation, in ms."""
    renewals: float
    """Requests a second that renew locks, of all members."""
    outcomes: tuple[Outcome, ...]

    @property
    def title(self) -> str:
        """Its size, in words."""
        return f"{self.brokers:,} brokers, {self.members:,} members, {self.queues:,} queues, `{self.strategy}`"


def store(run: Run) -> None:
    """Write a run to a file, over an earlier one of its size and strategy."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{run.brokers}-{run.members}-{run.queues}-{run.strategy}.json"
    path.write_text(json.dumps(asdict(run), indent=1) + "\n", encoding="utf-8")


def stored() -> list[Run]:
    """Return all runs, the small ones first."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*.json")]
    runs = [Run(**one | {"outcomes": tuple(Outcome(**each) for each in one["outcomes"])}) for one in found]
    return sorted(runs, key=lambda run: (run.members, run.queues, run.strategy))


def written(runs: Sequence[Run]) -> str:
    """Return the page."""
    return "\n".join([_HEAD, *map(_section, runs), _steady(runs)])


def _section(run: Run) -> str:
    rows = [
        f"| {one.scenario} | {one.settled_s:.2f} s | {one.moved:,} | {sum(one.asked.values()):,} | {one.busiest:,} |\n"
        for one in run.outcomes
    ]
    return _SECTION.format(run=run) + "".join(rows)


def _steady(runs: Sequence[Run]) -> str:
    sizes = {(run.brokers, run.members, run.queues): run for run in runs if run.strategy == "averaged"}
    rows = [
        f"| {brokers:,} | {members:,} | {queues:,} | {members / FRESH_S:,.0f} | {members * brokers / INTERVAL_S:,.0f} "
        f"| {members / INTERVAL_S:,.0f} | {members / LOOK_EVERY_S:,.0f} | {run.renewals:,.0f} |\n"
        for (brokers, members, queues), run in sizes.items()
    ]
    return _STEADY + "".join(rows)


def write(path: Path = PAGE) -> None:
    """Write the page from the runs that are stored."""
    path.write_text(written(stored()), encoding="utf-8")
