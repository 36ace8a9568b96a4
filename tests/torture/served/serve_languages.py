"""One group of a Java consumer, a Go consumer and a local worker over a served store, killed at random."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.interop.rocketmq import BROKER_4_9_7, why_not
from tests.interop.serve.one_group import share_and_kill
from tests.torture.result import Result, Rig

CLAIM = (
    "A Java consumer, a Go consumer and a local worker share a group; kill -9 of any of them loses no message, no "
    "queue has two owners at a time, and only what was in flight or not committed at a death is handled again."
)

_PER_SECOND = 5_000


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Send so many messages, and kill a member every few seconds meanwhile."""
    result = Result(CLAIM)
    if reason := why_not(BROKER_4_9_7) or ("" if shutil.which("go") else "there is no Go"):
        result.skipped = reason
        return result
    found = share_and_kill(seed, rounds, _PER_SECOND, scratch)
    result.figures |= found.figures()
    result.problems += [f"lost: {number}" for number in found.lost[:5]]
    result.problems += [f"handled again without a kill: {pair}" for pair in found.unexplained[:5]]
    result.problems += [f"two owners at once: {pair}" for pair in found.at_once[:5]]
    if not found.server_runs:
        result.problems.append("the server ended by itself")
    return result


RIG = Rig("serve-languages", 1_000_000, run)
"""``--rounds`` are messages."""
