"""Rigs that mount: each runs in mount and process namespaces of its own, which end with it, whoever kills it."""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from tests.power.disks import machine
from tests.torture.result import Result

ROOT = Path(__file__).parents[2]


def run(module: str, claim: str, seed: int, rounds: int, scratch: Path) -> Result:
    """Run the main function of a module apart, and return the result that it prints."""
    command = [sys.executable, "-m", module, str(seed), str(rounds), str(scratch)]
    ran = subprocess.run(machine.command(command), cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode:
        return Result(claim, problems=[f"the rig ended with status {ran.returncode}: {ran.stderr[-2_000:]}"])
    return Result(**json.loads(ran.stdout))


def main(run_here: Callable[[int, int, Path], Result]) -> None:
    """Be what :func:`run` starts: run a rig in a directory in memory, and print its result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("rounds", type=int)
    parser.add_argument("scratch", type=Path)
    options = parser.parse_args()
    for package in ("store", "rmqclient"):  # damage is what these rigs are about
        logging.getLogger(package).setLevel(logging.CRITICAL)
    print(json.dumps(asdict(run_here(options.seed, options.rounds, options.scratch))))


def memory(scratch: Path, size_bytes: int) -> Path:
    """Mount a file system in memory inside ``scratch``, for images of disks; it goes with the namespaces."""
    directory = scratch / "memory"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", directory], check=True)
    return directory
