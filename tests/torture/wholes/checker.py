"""Millions of messages with kills, stops and churn, and as many without; every rule of the checker on each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.torture.result import Result, Rig

CLAIM = (
    "Kills, stops and churn lose, invent, damage and reorder nothing; no queue has two owners and no stale "
    "acknowledgement is taken; what is delivered again was in flight at a fault, and without one nothing is."
)
_TOP = Path(__file__).parents[3]
_RUNS = {"with faults": (), "without": ("--no-faults",)}


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Send so many messages under faults, and a tenth of them without."""
    result = Result(CLAIM)
    for name, options in _RUNS.items():
        messages = rounds if not options else max(1, rounds // 10)
        directory = scratch / name.replace(" ", "-")
        directory.mkdir()
        verdict = _check("--messages", str(messages), "--seed", str(seed), "--directory", str(directory), *options)
        result.figures |= {f"{name}: {figure}": value for figure, value in verdict["figures"].items()}
        result.figures[f"{name}: anomalies"] = sum(verdict["counts"].values())
        result.problems += [f"{name}: {example}" for example in verdict["examples"]]
    return result


def _check(*options: str) -> dict[str, Any]:
    """Run the checker in a process of its own: its children are forked."""
    command = [sys.executable, "-m", "tests.checker", "--json", *options]
    run = subprocess.run(command, cwd=_TOP, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode not in {0, 1} or not run.stdout:
        return {"figures": {}, "counts": {"checker": 1}, "examples": [f"the checker ended with {run.returncode}"]}
    verdict: dict[str, Any] = json.loads(run.stdout)
    return verdict


RIG = Rig("checker", 10_000_000, run)
