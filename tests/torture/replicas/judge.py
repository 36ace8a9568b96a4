"""What the rig looks at: two logs, and the messages in them."""

from __future__ import annotations

import random
import time
from pathlib import Path

from rmqclient.store import MessageStore, open_store
from rmqclient.store.log import commit_log
from rmqclient.store.log.record import Record
from rmqclient.store.settings import checkpoint
from rmqclient.store.settings.lineage import read_lineage
from tests.replication.pairs import log_bytes
from tests.support.oracle import reference

_LIMIT_S = 40.0


def noted(path: Path) -> set[int]:
    """Return the numbers that senders have noted; a line that a kill cut short counts for nothing."""
    if not path.exists():
        return set()
    return {int(line) for line in path.read_text(encoding="ascii").split("\n")[:-1]}


def pair(primary: Path, replica: Path, replicated: set[int], *, is_level: bool = False) -> list[str]:
    """Return what is wrong with a primary and its replica."""
    with open_store(primary, housekeeping=False) as one, open_store(replica, housekeeping=False) as other:
        left, right = log_bytes(one), log_bytes(other)
        numbers = [numbers_in(one), numbers_in(other)]
    problems = [f"{root.name}: {each}" for root in (primary, replica) for each in reference.check_store(root)]
    if not left.startswith(right):
        at = next((at for at, (x, y) in enumerate(zip(left, right, strict=False)) if x != y), len(left))
        problems.append(f"the replica ({len(right)} bytes) is no prefix of the primary ({len(left)}): byte {at}")
    if is_level and left != right:
        problems.append(f"the replica has {len(right)} bytes of {len(left)} after it has caught up")
    for name, found in zip(("primary", "replica"), numbers, strict=True):
        if lost := replicated - found:
            problems.append(f"the {name} lacks {len(lost)} replicated messages, of them {sorted(lost)[:3]}")
    return problems


def has_all(root: Path, replicated: set[int]) -> list[str]:
    """Return what a promoted store lacks."""
    with open_store(root, housekeeping=False) as store:
        lost = replicated - numbers_in(store)
    return [f"{len(lost)} replicated messages are not there after a promotion: {sorted(lost)[:3]}"] if lost else []


def numbers_in(store: MessageStore) -> set[int]:
    """Return the numbers of all messages of a log."""
    state = store.state
    steps = commit_log.walk(store.log_files, state.min_offset, state.published_to)
    bodies = [outcome.message.body for _, outcome in steps if isinstance(outcome, Record)]
    return {int(number) for body in bodies if (number := body.partition(b";")[0]).isdigit()}


def becomes_level(root: Path, primary: Path) -> bool:
    """Wait until a replica has what its primary has; both are open elsewhere."""
    deadline = time.monotonic() + _LIMIT_S
    with open_store(primary, housekeeping=False) as one, open_store(root, housekeeping=False) as other:
        while other.state.published_to < one.state.published_to or read_lineage(root) != read_lineage(primary):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
    return True


def lose_power(root: Path, chance: random.Random) -> bool:
    """Leave a store that no process has open as a power cut does that takes an end that was not flushed.

    Returns whether there was such an end. A replica that was promoted before it had a byte has no log to lose.
    """
    size = max((path.stat().st_size for path in (root / "commitlog").glob("*")), default=0)
    with open_store(root, housekeeping=False) as store:
        end, begin = store.state.published_to, store.state.min_offset
        last = [offset for offset, _ in commit_log.walk(store.log_files, begin, end)][-20:]
    _, low_water = checkpoint.read(root)  # as the close has left it: only a mark with a higher number counts
    if low_water is None or not last or not size:
        return False
    kept = chance.choice(last)
    lowered = checkpoint.LowWater(low_water.sequence + 1, begin, begin)
    checkpoint.write(root, checkpoint.Checkpoint(), lowered)
    for path in (root / "commitlog").iterdir():
        stays = max(0, min(kept - int(path.name), size))
        path.write_bytes(path.read_bytes()[:stays].ljust(size, b"\0"))
    (root / "shared").unlink()
    (root / "abort").touch()
    return True
