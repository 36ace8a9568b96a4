"""Members of a group in random interleavings, killed at random accesses to what they share."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
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
    with ExitStack() as store:
        for number in range(rounds):
            if number % _RUNS_IN_A_STORE == 0:
                store.close()
                directory = store.enter_context(tempfile.TemporaryDirectory(prefix="interleavings-", dir=scratch))
                play = store.enter_context(stage(Path(directory) / "store"))
            try:
                played = play(seed + number)
            except Broken as problem:
                result.problems.append(f"seed {seed + number}: {problem}")
            else:
                members += len(played.processes)
                killed += played.killed
                grants += len(played.grants)
    result.figures |= {"runs": rounds, "members": members, "killed": killed, "grants": grants}
    return result


RIG = Rig("interleavings", 5_000, run)
