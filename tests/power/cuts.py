"""Power cuts: real senders and a consumer on a real file system, and the judgement after each cut.

A round starts processes, cuts the power at a random moment, kills them, starts the machine again, perhaps cuts the
power again while the store is recovered, and then looks at what is there. The next round goes on with the store that
survived, or with a fresh one.

``python -m tests.power.cuts ext4 --rounds 1000 --seed 7`` prints the figures as JSON. It must run as
:func:`tests.power.disks.machine.command` says, and :func:`run` sees to that.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rmqclient.store import Durability, StoreConfig
from rmqclient.store.settings import checkpoint
from tests.power.disks import machine
from tests.power.disks.dirty_pages import frontiers, is_no_prefix, write_some
from tests.power.disks.machine import Cut, Machine
from tests.power.judge import Figures, Ledger, PowerCut, Recovered
from tests.power.life import CONFIG, LAZY, RECORD_OVERHEAD, Errand, Evidence, consume, look, send
from tests.support.oracle import index as reference_index
from tests.support.oracle import reference

ROOT = Path(__file__).parents[2]

MARGIN_MS = 500 + 500
"""Beside the flush intervals: half a second in which the housekeeper's role finds another process, and as much for the
flush itself and for processes that wait for a processor."""

SIZES = (
    (1024 - RECORD_OVERHEAD,),  # records that end where pages end: what stands behind them could be taken for theirs
    (4096 - RECORD_OVERHEAD,),
    (8, 20, 100),
    (8, 300, 2_000, 8_000),
)
MOST_RECORDS = 400
"""A store with more is left behind, because the judge reads all of it after each cut."""


@dataclass(slots=True)
class Counts:
    """What a campaign has done."""

    cuts: int = 0
    cuts_during_opening: int = 0
    cuts_during_closing: int = 0
    cuts_during_recovery: int = 0
    cuts_after_deleting: int = 0
    cuts_with_the_journal: int = 0
    cuts_with_everything: int = 0
    non_prefix_cuts: int = 0
    stores: int = 0


@dataclass(slots=True)
class Child:
    """A process of a round."""

    number: int
    pid: int
    stages: int
    """End of a pipe that gets a byte with each stage."""
    sync: bool | None
    """Of a sender; None for a consumer."""


@dataclass(slots=True)
class Life:
    """One store, from its making until it is left behind."""

    root: Path
    ledger: Ledger
    sizes: tuple[int, ...]
    config: StoreConfig
    flushed_to: int = 0
    deleted_to: int = 0
    deletes: bool = False
    """Whether the oldest commit log files are deleted now and then, and nobody consumes."""

    @property
    def window_ms(self) -> int:
        """What is older than this must survive, ASYNC or not."""
        flush = self.config.flush
        return flush.interval_ms + flush.thorough_interval_ms + MARGIN_MS


class Cuts:
    """One machine, its stores, and their evidence."""

    def __init__(self, computer: Machine, scratch: Path, seed: int) -> None:
        self.figures = Figures()
        self.counts = Counts()
        self.problems: list[str] = []
        self._computer = computer
        self._evidence = scratch / "evidence"
        self._evidence.mkdir()
        self._chance = random.Random(seed)
        self._children: list[Child] = []
        self._started = 0
        self._life = self._fresh()

    def run(self, rounds: int) -> None:
        """Cut the power so many times, or until too much is wrong."""
        while self.counts.cuts < rounds and len(self.problems) < 20:
            try:
                self._round()
            finally:
                self._kill_all()

    def _round(self) -> None:
        chance = self._chance
        self._work()
        cut = self._cut()
        if chance.random() < 0.25:
            looker = self._start_look()
            self._wait_a_moment(chance.choice((0.004, 0.012)))
            self._cut()
            self.counts.cuts_during_recovery += self._stage_of(looker) < 2
            if (recovered := self._recovered(looker)) is not None:
                cut.log_end = recovered.log_end
        self._judge()

    def _work(self) -> None:
        """Start senders and perhaps a consumer, and come back when the power is to be cut."""
        chance = self._chance
        closing = chance.random() < 0.25
        long = chance.random() < 0.01
        for _ in range(chance.choice((1, 1, 2))):
            self._start_sender(closing=closing, long=long)
        if not self._life.deletes and chance.random() < 0.4:
            seed = chance.getrandbits(32)
            self._start(lambda life, evidence: consume(life.root, life.config, evidence, seed), sync=None)
        if chance.random() < 0.15:
            self._wait_a_moment(0.012)
            return
        for child in self._children:
            self._wait_for(child, stage=3 if closing and child.sync is not None else 2)
        if self._life.deletes:
            self._delete_oldest()
        self._wait_a_moment(1.5 if long else 0.004 if closing else chance.choice((0.005, 0.03, 0.08)))

    def _start_sender(self, *, closing: bool, long: bool) -> None:
        chance = self._chance
        durability = Durability.SYNC if chance.random() < 0.4 else Durability.ASYNC
        errand = Errand(
            sender=self._started,
            seed=chance.getrandbits(32),
            durability=durability,
            sizes=self._life.sizes,
            sends=chance.randint(0, 12) if closing else 60,
            pause_s=0.05 if long else chance.choice((0.0002, 0.002, 0.008)),
            close=closing,
        )
        sync = durability is Durability.SYNC
        self._start(lambda life, evidence: send(life.root, life.config, evidence, errand), sync=sync)

    def _start_look(self) -> Child:
        chance = self._chance
        durability = Durability.SYNC if chance.random() < 0.5 else Durability.ASYNC
        errand = Errand(
            sender=self._started,
            seed=chance.getrandbits(32),
            durability=durability,
            sizes=self._life.sizes,
            sends=1,
            pause_s=0,
            close=chance.random() < 0.3,
        )
        sync = durability is Durability.SYNC
        return self._start(lambda life, evidence: look(life.root, life.config, evidence, errand), sync=sync)

    # --- the cut ------------------------------------------------------------------------------------

    def _cut(self) -> PowerCut:
        """Cut the power under everybody, and start the machine again."""
        chance, life = self._chance, self._life
        for child in self._children:
            self._must_live(child)
        flushed_to, published_to = frontiers(life.root)
        mixed = chance.random() < 0.6
        how = chance.choices((Cut.NOTHING, Cut.JOURNAL, Cut.ALL), (1, 4, 0) if mixed else (6, 2, 1))[0]
        if mixed:
            write_some(life.root, flushed_to, published_to, chance)
        life.flushed_to = max(life.flushed_to, frontiers(life.root)[0])
        cut = PowerCut(self._computer.cut(how), life.flushed_to, life.window_ms)
        stages = [self._stage_of(child) for child in self._children]
        self.counts.cuts += 1
        self.counts.cuts_during_opening += 1 in stages
        self.counts.cuts_during_closing += 3 in stages
        self.counts.cuts_after_deleting += life.deletes
        self.counts.cuts_with_the_journal += how is Cut.JOURNAL
        self.counts.cuts_with_everything += how is Cut.ALL
        self._end_children(cut)
        self._computer.start()
        self.counts.non_prefix_cuts += is_no_prefix(life.root, flushed_to, published_to)
        return cut

    def _delete_oldest(self) -> None:
        """Delete the oldest commit log file under everybody, if a checkpoint says that all of it was dispatched."""
        life = self._life
        bases = sorted(int(path.name) for path in (life.root / "commitlog").glob("[0-9]*"))
        _, mark = checkpoint.read(life.root)
        if bases and mark is not None and bases[0] + CONFIG.commit_log_file_bytes <= mark.dispatched_to:
            (life.root / "commitlog" / f"{bases[0]:020d}").unlink()
            life.deleted_to = bases[0] + CONFIG.commit_log_file_bytes

    # --- the judgement ------------------------------------------------------------------------------

    def _judge(self) -> None:
        """Recover the store, compare what is there with what must be, and choose the next store."""
        life = self._life
        looker = self._start_look()
        _, status = os.waitpid(looker.pid, 0)
        recovered = self._recovered(looker)
        self._end_children(None)
        if status or recovered is None:
            self.problems.append(f"cut {self.counts.cuts}: recovery ended with status {status}")
            self._life = self._fresh()
            return
        found = reference.check_store(life.root)
        if not found and not life.deletes:
            found = reference_index.check_index(life.root, CONFIG.index_slots)
        records = []
        if not found:
            records = reference.read_commit_log(life.root)
            found = life.ledger.judge(recovered, records, life.deleted_to)
        self.problems += [f"cut {self.counts.cuts}: {problem}" for problem in found]
        if found or len(records) > MOST_RECORDS or self._chance.random() < 0.05:
            self._life = self._fresh()
        for path in self._evidence.iterdir():
            path.unlink()

    def _recovered(self, looker: Child) -> Recovered | None:
        recovered = None
        for line in self._lines(looker):
            kind, *words = line.split()
            if kind == "r":
                recovered = Recovered(int(words[0]))
            elif kind == "g" and recovered is not None:
                topic, queue_id, committed, low, high = words
                recovered.groups.append((topic, int(queue_id), int(committed), int(low), int(high)))
        return recovered

    def _fresh(self) -> Life:
        """Leave the store behind. One under a new name, because the removal of the old one may not be durable."""
        for old in self._computer.directory.glob("store-*"):
            shutil.rmtree(old)
        self.counts.stores += 1
        root = self._computer.directory / f"store-{self.counts.stores}"
        config = self._chance.choice((CONFIG, LAZY))
        deletes = self._chance.random() < 0.15
        return Life(root, Ledger(self.figures), self._chance.choice(SIZES), config, deletes=deletes)

    # --- processes ----------------------------------------------------------------------------------

    def _start(self, errand: Callable[[Life, Evidence], None], *, sync: bool | None) -> Child:
        number = self._started
        self._started += 1
        stages, say_stage = os.pipe()
        pid = os.fork()
        if pid == 0:
            _live(errand, self._life, Evidence(self._path_of(number), say_stage))
        os.close(say_stage)
        child = Child(number, pid, stages, sync)
        self._children.append(child)
        return child

    def _wait_for(self, child: Child, stage: int) -> None:
        """Wait until a process has reached a stage, or is dead, which is judged elsewhere."""
        while self._stage_of(child) < stage and os.read(child.stages, 1):
            pass

    def _wait_a_moment(self, longest_s: float) -> None:
        time.sleep(self._chance.uniform(0, longest_s))  # the moment of the cut

    def _must_live(self, child: Child) -> None:
        ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None and (ended.si_status or self._stage_of(child) < 2):
            self.problems.append(f"cut {self.counts.cuts}: a process ended before the cut, status {ended.si_status}")

    def _stage_of(self, child: Child) -> int:
        """Return how many stages a process has reached: opening, open, closing, closed."""
        return sum(line.startswith("w ") for line in self._lines(child))

    def _end_children(self, cut: PowerCut | None) -> None:
        """Kill everybody and take in what they said; errors before the cut are problems."""
        children = list(self._children)
        self._kill_all()
        for child in children:
            lines = self._lines(child)
            for line in lines:
                if line.startswith("x ") and (cut is None or int(line.split()[1]) < cut.at_ns):
                    self.problems.append(f"cut {self.counts.cuts}: before the cut: {line}")
            if child.sync is None:
                self._life.ledger.read_consumer(lines)
            else:
                self._life.ledger.read_sender(child.number, lines, sync=child.sync)
        if cut is not None:
            self._life.ledger.cut(cut)

    def _kill_all(self) -> None:
        for child in self._children:
            try:
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass  # ended and waited for
            os.close(child.stages)
        self._children.clear()

    def _path_of(self, number: int) -> Path:
        return self._evidence / f"{number}"

    def _lines(self, child: Child) -> list[str]:
        path = self._path_of(child.number)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return text.rpartition("\n")[0].splitlines()


def _live(errand: Callable[[Life, Evidence], None], life: Life, evidence: Evidence) -> None:
    """Do an errand in a forked child; never returns."""
    signal.alarm(60)
    threading.excepthook = lambda error: evidence.error(f"{error.exc_type.__name__}: {error.exc_value}")
    try:
        errand(life, evidence)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the child must not return into its parent's life
        evidence.error(f"{type(error).__name__}: {error}")
        os._exit(1)
    os._exit(0)


# --- in namespaces of its own ---------------------------------------------------------------------------


def run(file_system: str, rounds: int, seed: int, scratch: Path) -> dict[str, Any]:
    """Run a campaign in namespaces of its own; return its figures, counts and problems."""
    arguments = ["-m", "tests.power.cuts", file_system, f"--rounds={rounds}", f"--seed={seed}", f"--scratch={scratch}"]
    ran = subprocess.run(
        machine.command([sys.executable, *arguments]), cwd=ROOT, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        return {"problems": [f"the campaign on {file_system} ended with status {ran.returncode}: {ran.stderr}"]}
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def main() -> None:
    """Run a campaign on one file system from the command line."""
    parser = argparse.ArgumentParser(description="Cut the power of real processes, and judge what is left.")
    parser.add_argument("file_system", choices=machine.MAKING)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--scratch", type=Path, required=True, help="an empty directory, in memory if there is enough")
    options = parser.parse_args()
    computer = Machine(options.file_system, options.scratch)
    campaign = Cuts(computer, options.scratch, options.seed)
    started = time.monotonic()
    campaign.run(options.rounds)
    seconds = time.monotonic() - started
    computer.close()
    found = {"problems": campaign.problems, "seconds": seconds, **asdict(campaign.counts), **asdict(campaign.figures)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
