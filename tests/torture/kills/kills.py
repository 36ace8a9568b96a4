"""Random ``kill -9`` of senders and consumers, thousands of times, on one host and in containers of it."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

from tests.crash.campaign import Campaign, CampaignOfContainers
from tests.torture.result import Result, Rig

CLAIM = "No kill loses, invents, damages or reorders a message, and only what was in flight is delivered again."
CLAIM_OF_CONTAINERS = "The same holds for processes in PID namespaces of their own, while others stand still."


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Do so many rounds of bursts and kills over one store."""
    return _judged(CLAIM, Campaign(scratch, seed), rounds)


def run_in_namespaces(seed: int, rounds: int, scratch: Path) -> Result:
    """Do the same with processes in PID namespaces of their own, of which some stand still meanwhile."""
    if os.geteuid() != 0:
        return Result(CLAIM_OF_CONTAINERS, skipped="only root may make PID namespaces")
    campaign = CampaignOfContainers(scratch, seed)
    result = _judged(CLAIM_OF_CONTAINERS, campaign, rounds)
    result.figures["stops"] = campaign.stops
    return result


def _judged(claim: str, campaign: Campaign, rounds: int) -> Result:
    figures = campaign.run(rounds)
    counts: dict[str, int | float | str] = {
        name.replace("_", " "): count for name, count in asdict(figures).items() if isinstance(count, int)
    }
    problems = [f"{name}: {count}" for name, count in figures.faults.items() if count]
    return Result(claim, counts, problems + figures.problems)


RIG = Rig("kills", 5_000, run)
CONTAINERS = Rig("kills-in-containers", 2_000, run_in_namespaces)
