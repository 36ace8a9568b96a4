"""Power cuts of one side of a pair, on a real file system: of a replica, or of its primary.

A round lets a primary send to its replica, cuts the power of one of the two at a random moment, and kills the processes
of both. Both find their hosts restarted then, so the primary takes back what its replica has. After that every message
whose send said that it is replicated must be in both logs.

``python -m tests.torture.replicas.power ext4 replica --rounds 100 --seed 7 --scratch DIRECTORY`` prints what it found
as JSON. It must run as :func:`tests.power.disks.machine.command` says, and :func:`cut` sees to that.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rmqclient.errors import StoreUnsettled
from rmqclient.store import Message, open_store
from rmqclient.store.recovery.replica import become_replica
from rmqclient.store.settings.lineage import begin_lineage
from rmqclient.store.settings.replica_mark import ReplicaMark
from rmqclient.store.settings.replication import OnLost
from tests.power.cuts import ROOT
from tests.power.disks import machine
from tests.power.disks.machine import Cut, Machine
from tests.support.stores import SMALL, TOPIC, appender_of
from tests.torture.replicas import hosts, judge
from tests.torture.replicas.hosts import NO_BROKER, Host, kept_port
from tests.torture.result import Result, Rig

CLAIM = (
    "A power cut of a replica takes nothing that it has reported, and one of a primary nothing that its replica has: a "
    "message whose send said that it is replicated is in both logs afterwards."
)
SIDES = ("replica", "primary")
_SIZES = (20, 300, 3_000)
_ROUNDS_OF_A_PAIR = 10
_LONGEST_WORK_S = 0.4
_MEMORY = Path("/dev/shm")
"""Where the disks are, when it is there: what is cut is the file system, however fast the disk below it is."""


class Pair:
    """A primary and its replica, one of them on the machine whose power is cut."""

    def __init__(self, kept: Path, lost: Path, side: str) -> None:
        """``lost`` is on the machine whose power is cut, ``kept`` is not."""
        self.primary = (lost if side == "primary" else kept) / "primary"
        self.replica = (lost if side == "replica" else kept) / "replica"
        self.notes = kept / "notes"
        self.replicated: set[int] = set()

    def make(self, port: int) -> None:
        """Make both stores."""
        self.primary.parent.mkdir()
        self.replica.parent.mkdir()
        with open_store(self.primary, SMALL, housekeeping=False) as store:
            appender_of(store).append(Message(TOPIC, b"first;"))
        with open_store(self.primary, housekeeping=False):
            begin_lineage(self.primary)
        become_replica(self.replica, SMALL, ReplicaMark(f"127.0.0.1:{port}", NO_BROKER, 1))


class Cuts:
    """The rig: one pair after the other."""

    def __init__(self, computer: Machine, side: str, seed: int, scratch: Path, port: int) -> None:
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._computer, self._side, self._scratch, self._port = computer, side, scratch, port
        self._chance = random.Random(seed)

    def run(self, rounds: int) -> None:
        """Cut the power so often, or until something is wrong."""
        for first in range(0, rounds, _ROUNDS_OF_A_PAIR):
            self._use_a_pair(range(first, min(first + _ROUNDS_OF_A_PAIR, rounds)))
            if self.problems:
                return

    def _use_a_pair(self, rounds: range) -> None:
        kept, lost = (root / f"pair-{rounds.start}" for root in (self._scratch, self._computer.directory))
        pair = Pair(kept, lost, self._side)
        self._apart(partial(pair.make, self._port))
        for number in rounds:
            self._round(pair, number * 100_000)
            if self.problems:
                self.problems = [f"round {number}: {problem}" for problem in self.problems]
                return
        self.counts["replicated messages"] += len(pair.replicated)
        for directory in (kept, lost):
            shutil.rmtree(directory)

    def _round(self, pair: Pair, first: int) -> None:
        sending = Host(
            lambda: hosts.primary(pair.primary, self._port, pair.notes, first, on_lost=OnLost.REFUSE, sizes=_SIZES)
        )
        following = Host(lambda: hosts.follower(pair.replica, self._port))
        time.sleep(self._chance.uniform(0.02, _LONGEST_WORK_S))
        self._computer.cut(self._chance.choice((Cut.NOTHING, Cut.JOURNAL)))
        sending.kill()
        following.kill()
        self._computer.start()
        self.counts["cuts"] += 1
        pair.replicated |= judge.noted(pair.notes)
        self._settle(pair)
        self.problems += self._apart(lambda: judge.pair(pair.primary, pair.replica, pair.replicated))

    def _settle(self, pair: Pair) -> None:
        """Let a primary that was followed take back what it has lost."""
        lost = self._apart(lambda: _lost_by(pair))
        if lost is None:
            return
        self.counts["primaries that were settled"] += 1
        self.counts["replicated messages that came back"] += lost
        following = Host(lambda: hosts.follower(pair.replica, self._port))
        settling = Host(lambda: hosts.settle(pair.primary, self._port))
        if settling.wait() != 0:
            self.problems.append(f"nothing was taken back: {settling.status}; the follower: {following.status}")
        following.kill()
        settling.kill()

    def _apart(self, work: Callable[[], Any]) -> Any:
        """Do something in a process of its own, and return what it returns: nothing here may keep the disk busy."""
        said = self._scratch / "said"

        def say() -> None:
            said.write_text(json.dumps(work()), encoding="ascii")

        host = Host(say)
        if host.wait() != 0:
            raise RuntimeError(f"a process of the rig ended with {host.status}")
        return json.loads(said.read_text(encoding="ascii"))


def _lost_by(pair: Pair) -> int | None:
    """Return how many replicated messages a primary that waits for its replica has lost; None for one that does not."""
    try:
        open_store(pair.primary, housekeeping=False).close()
    except StoreUnsettled:
        with open_store(pair.primary, create=False, housekeeping=False, settling=True) as store:
            return len(pair.replicated - judge.numbers_in(store))
    return None


# --- in namespaces of its own ---------------------------------------------------------------------------


def cut(file_system: str, side: str, rounds: int, seed: int, scratch: Path) -> dict[str, Any]:
    """Cut the power of one side so often; return figures and ``problems``."""
    with tempfile.TemporaryDirectory(
        prefix="rmq-power-", dir=_MEMORY if _MEMORY.is_dir() else scratch, ignore_cleanup_errors=True
    ) as directory:
        arguments = [file_system, side, f"--rounds={rounds}", f"--seed={seed}", f"--scratch={directory}"]
        ran = subprocess.run(
            machine.command([sys.executable, "-m", "tests.torture.replicas.power", *arguments]),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    if ran.returncode:
        return {"problems": [f"{side}, seed {seed}: it ended with status {ran.returncode}: {ran.stderr[-2_000:]}"]}
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Cut the power so often, in turns of a replica and of a primary, on each file system that can be made here."""
    file_systems = {name: machine.why_not(name) for name in machine.MAKING}
    usable = [name for name, reason in file_systems.items() if not reason]
    if not usable:
        return Result(CLAIM, skipped="; ".join(f"{name}: {reason}" for name, reason in file_systems.items()))
    result = Result(CLAIM)
    turns = [(name, side) for name in usable for side in SIDES]
    for number, (name, side) in enumerate(turns):
        share = rounds // len(turns) + (number < rounds % len(turns))
        found = cut(name, side, share, seed + number, scratch)
        result.problems += [f"{name}, {side}: {problem}" for problem in found.pop("problems")]
        result.figures |= {f"{side} on {name}: {figure}": value for figure, value in sorted(found.items())}
    result.figures |= {f"{name} left out": reason for name, reason in file_systems.items() if reason}
    return result


def main() -> None:
    """Run on one machine from the command line."""
    parser = argparse.ArgumentParser(description="Cut the power of one side of a pair, and judge what is left.")
    parser.add_argument("file_system", choices=machine.MAKING)
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--scratch", type=Path, required=True, help="an empty directory, in memory if there is enough")
    options = parser.parse_args()
    computer = Machine(options.file_system, options.scratch)
    with kept_port() as port:
        cuts = Cuts(computer, options.side, options.seed, options.scratch, port)
        cuts.run(options.rounds)
    computer.close()
    print(json.dumps({"problems": cuts.problems, **cuts.counts}))


RIG = Rig("power-of-pairs", 1_000, run)


if __name__ == "__main__":
    main()
