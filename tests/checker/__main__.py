"""``python -m tests.checker``: one run of the workload, and what the rules say about it.

It has a process of its own, because its children are forked and forks want a parent with one thread. The status is 1
when a rule found something.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from tests.checker.plan import Plan, fresh_seed, known_modes
from tests.checker.planted import PLANTED
from tests.checker.rules.checks import judge
from tests.checker.rules.evidence import collect
from tests.checker.running.phases import run
from tests.support.host import wall_clock

SCALED_LEASE_MS, TRUE_LEASE_MS = 500, 20_000


def main() -> int:
    """Run, judge, print."""
    parser = argparse.ArgumentParser(description="Send, handle, kill, stop, and judge what came of it.")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=fresh_seed())
    parser.add_argument("--no-faults", action="store_true", help="nobody is killed or stopped, leases are long")
    parser.add_argument("--plant", choices=PLANTED, help="run a product with this fault in it")
    parser.add_argument("--patience", type=float, default=Plan.patience_s, help="seconds without progress")
    parser.add_argument("--lease-ms", type=int, help=f"[default: {SCALED_LEASE_MS}, {TRUE_LEASE_MS} without faults]")
    parser.add_argument("--directory", type=Path, help="an empty one, to keep the store and the histories in")
    parser.add_argument("--json", action="store_true", help="print the verdict as one line of JSON")
    options = parser.parse_args()
    if not options.no_faults and wall_clock.path_of_this_process() is None and not wall_clock.why_not():
        return _run_under_a_wall_clock(options.seed)
    if not options.json:
        print(f"seed {options.seed}", flush=True)
    logging.disable(logging.CRITICAL)  # lost leases and retries are what the run is about
    modes, skipped = known_modes()
    plan = Plan(
        seed=options.seed,
        messages=options.messages,
        modes=modes,
        lease_ms=options.lease_ms or (TRUE_LEASE_MS if options.no_faults else SCALED_LEASE_MS),
        patience_s=options.patience,
    )
    plant = PLANTED[options.plant] if options.plant else None
    kept = nullcontext(str(options.directory)) if options.directory else tempfile.TemporaryDirectory()
    with kept as directory:
        outcome = run(
            plan,
            Path(directory),
            faults=not options.no_faults,
            prepare=plant,
            wall_clock=wall_clock.path_of_this_process(),
        )
        verdict = judge(collect(plan, Path(directory), outcome))
    verdict.figures["left out"] = "; ".join(skipped) or "nothing"
    if options.json:
        print(json.dumps(asdict(verdict)))
    else:
        print("\n".join(f"{name}: {value}" for name, value in verdict.figures.items()))
        print("\n".join(f"FOUND {name}: {count}" for name, count in verdict.counts.items()))
        print("\n".join(verdict.examples))
    return 1 if verdict.counts else 0


def _run_under_a_wall_clock(seed: int) -> int:
    """Do the same in a process whose wall clock the nemesis can set."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "tests.checker", *sys.argv[1:], "--seed", str(seed)]
        environment = wall_clock.WallClock(Path(directory)).environment
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
