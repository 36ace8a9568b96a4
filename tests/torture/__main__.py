"""``python -m tests.torture``: the rigs at their full size, and the page with their figures.

Each result is written to ``tests/torture/results`` when its rig ends, and ``docs/results/reliability.md`` is made from
all results that are there. The status is 1 when a rig found a problem.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import random
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from tests.torture import report
from tests.torture.result import Result, Rig
from tests.torture.rigs import RIGS


def main() -> int:
    """Run the rigs that were named, or all of them."""
    parser = argparse.ArgumentParser(description="Run the rigs at full size and write down their figures.")
    parser.add_argument("names", nargs="*", metavar="RIG", help=f"of {', '.join(RIGS)}; all without a name")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--rounds", "--frames", type=int, help="instead of each rig's own number")
    parser.add_argument("--scratch", type=Path, help="work inside this directory  [default: a temporary one]")
    parser.add_argument("--no-record", action="store_true", help="print the figures, and leave the page alone")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in RIGS]
    if unknown:
        parser.error(f"no such rig: {', '.join(unknown)}")
    for package in ("store", "rmqclient"):  # damage and lost queues are what the rigs are about
        logging.getLogger(package).setLevel(logging.CRITICAL)
    failed = False
    for name in options.names or RIGS:
        failed |= not _run(RIGS[name], options)
    if not options.no_record:
        report.write_page()
    return 1 if failed else 0


def _run(rig: Rig, options: argparse.Namespace) -> bool:
    rounds = options.rounds or rig.rounds
    print(f"{rig.name}: seed {options.seed}, rounds {rounds}", flush=True)
    started = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="rmq-torture-", dir=options.scratch))
    result = rig.run(options.seed, rounds, scratch)
    seconds = time.monotonic() - started
    print(f"{result}\n{seconds:.0f} s\n", flush=True)
    if result.problems:
        print(f"what the rig left: {scratch}\n", flush=True)
    else:
        shutil.rmtree(scratch)
    if not options.no_record:
        _record(rig, result, options.seed, rounds, seconds)
    return not result.problems


def _record(rig: Rig, result: Result, seed: int, rounds: int, seconds: float) -> None:
    recorded = {
        "rig": rig.name,
        "seed": seed,
        "rounds": rounds,
        "seconds": round(seconds),
        "day": datetime.now(UTC).date().isoformat(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **asdict(result),
    }
    report.RESULTS.mkdir(exist_ok=True)
    path = report.RESULTS / f"{rig.name}.json"
    path.write_text(json.dumps(recorded, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
