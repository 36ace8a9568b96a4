"""Members of a group in random interleavings, killed at random accesses to what they share."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.groups.interleaving import Broken, stage
from tests.torture.result import Result, Rig

CLAIM = (
    "Whoever dies, stops, leaves or joins at whatever access to shared memory: a queue has at most one owner under a "
    "lease, no epoch is granted twice, and in the end every queue has an owner, as the strategy says."
)
_RUNS_IN_A_STORE = 1_000
"""Each takes up to five slots of the group-queue table."""


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Play runs with the seeds from ``seed`` on; ``--seed`` with the number of one and ``--rounds 1`` repeats it."""
    result = Result(CLAIM)
    members = killed = grants = 0
    for first in range(seed, seed + rounds, _RUNS_IN_A_STORE):
        directory = Path(tempfile.mkdtemp(prefix="interleavings-", dir=scratch))
        with stage(directory) as play:
            for number in range(first, min(first + _RUNS_IN_A_STORE, seed + rounds)):
                try:
                    played = play(number)
                except Broken as problem:
                    result.problems.append(f"seed {number}: {problem}")
                else:
                    members += len(played.processes)
                    killed += played.killed
                    grants += len(played.grants)
        shutil.rmtree(directory)
    result.figures |= {"runs": rounds, "members": members, "killed": killed, "grants": grants}
    return result


RIG = Rig("interleavings", 5_000, run)
