"""Disks that run full after a clone or a snapshot of a store in use, at random moments.

On small file systems that share blocks, by turns, each with a new store for every episode. Two senders and a consumer
live through the episode. In a cycle the store comes to share its blocks; moments later the disk is filled, and some
moments after that there is room again. A sender may be told that the disk is full, or wait for room, or find some.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from rmqclient.message import Message
from rmqclient.sending.producer import Producer
from rmqclient.store import Durability, open_store
from rmqclient.store.errors import StoreBusy, StoreFull
from rmqclient.store.inspect.verify import verify
from tests.crash.campaign import is_drained
from tests.crash.history import Send, Stored, deliveries_of, judge, sends_of
from tests.crash.processes.child_campaign import LARGEST_BATCH, QUEUES, TOPIC, body_of, consume, sender_and_number
from tests.power.disks import machine
from tests.support.host.load import slowdown
from tests.support.host.shared_blocks import CASES, Case, remove_backup
from tests.support.host.small_disks import CannotMount, Filler, small_disk
from tests.support.oracle import reference
from tests.torture import apart
from tests.torture.damage.child_disk_full import SMALL_FILES
from tests.torture.lives import Life, Lives, saying, until_told
from tests.torture.result import Result, Rig

CLAIM = (
    "A disk that runs full after a clone or a snapshot, whenever, ends no process by a signal. Senders are told or "
    "wait, and go on with room; nothing sent is lost, nothing is stored or handled twice, nothing refused appears."
)
CYCLES = 6
"""Of one episode, after which the store is verified."""
SENDERS = 2
MEMORY_BYTES = 1 << 30
LONGEST_S = 30.0
"""Until a sender that has room again goes on, or a consumer has handled what is there; times the load."""
BEFORE_FULL_S = (0.0, 0.02, 1.5)
"""From the clone to the full disk, at most: before anybody looks, or when the store has blocks of its own again."""
WHILE_FULL_S = (0.1, 1.2)
PAUSE_S = 0.002


def send(root: Path, evidence: Path, sender: int, seed: int) -> None:
    """Send at random until told, and leave the store; what the disk has no room for is not sent again."""
    say, is_over, chance = saying(evidence), until_told(), random.Random(seed)
    durability = Durability.SYNC if sender % 2 else Durability.ASYNC
    with Producer(root, config=replace(SMALL_FILES, durability=durability)) as producer:
        producer.create_topic(TOPIC, QUEUES)
        number = 0
        while not is_over():
            count = chance.randint(2, LARGEST_BATCH) if chance.random() < 0.3 else 1
            messages = [Message(TOPIC, body_of(sender, number + step)) for step in range(count)]
            say(f"i {number} {count}")
            try:
                sent = producer.send_batch(messages, f"key {chance.randint(0, 9)}")[0]
            except (StoreFull, StoreBusy) as error:  # busy: another one waits for room, and holds a lock
                assert not error.stored
                say(f"f {number} {type(error).__name__}")
            else:
                say(f"o {number} {count} {sent.queue.queue_id}")
            number += count
            time.sleep(PAUSE_S)


class Episode:
    """One store on a small disk, from its first message to its last look."""

    def __init__(self, case: Case, disk: Path, lives: Lives, seed: int) -> None:
        self.count: Counter[str] = Counter()
        self.problems: list[str] = []
        self.longest_again_s = 0.0
        self._case = case
        self._disk = disk
        self._root = disk / "store"
        self._lives = lives
        self._chance = random.Random(seed)
        self._filler = Filler(disk)
        self._senders: list[Life] = []

    def run(self, cycles: int) -> None:
        """Do so many cycles, or until a problem; then look."""
        consumer = self._start()
        for _ in range(cycles):
            self._cycle()
            if self.problems:
                return
        self._finish(consumer)
        self._look(consumer)

    def _start(self) -> Life:
        ready, say_ready = os.pipe()
        consumer = self._lives.start("consumer", lambda evidence: consume(self._root, evidence, say_ready, SMALL_FILES))
        os.close(say_ready)
        os.read(ready, 1)
        os.close(ready)
        for number in range(SENDERS):
            self._start_sender(number)
        self._wait("the senders begin", self._sent_each())
        return consumer

    def _start_sender(self, sender: int) -> None:
        seed = self._chance.getrandbits(32)
        self._senders.append(self._lives.start("sender", lambda evidence: send(self._root, evidence, sender, seed)))

    def _cycle(self) -> None:
        chance = self._chance
        os.sync()  # what was never written has no blocks that could be shared
        self._share()
        self._let_pass(chance.uniform(0, chance.choice(BEFORE_FULL_S)))
        self._filler.fill()
        self._let_pass(chance.uniform(0, chance.choice(WHILE_FULL_S)))
        before, freed = self._sent_each(), time.monotonic()
        self._filler.free()
        if not self.problems and self._wait("the senders go on", before):
            self.longest_again_s = max(self.longest_again_s, time.monotonic() - freed)
        remove_backup(self._disk)
        self.count["cycles"] += 1

    def _share(self) -> None:
        try:
            self._case.share(self._disk)
        except subprocess.CalledProcessError:  # a file was renamed or removed under it, or the disk is full
            self.count["copies that are not whole"] += 1

    def _finish(self, consumer: Life) -> None:
        for sender in self._senders:
            if status := self._lives.end(sender, signal.SIGTERM, LONGEST_S * slowdown()):
                self._tell(f"{sender} left with {status}: {self._lives.last_words(sender)}")
        with open_store(self._root, SMALL_FILES, housekeeping=False) as store:
            until = time.monotonic() + LONGEST_S * slowdown()
            while not is_drained(store):
                if time.monotonic() > until or self._bury():
                    self._tell("the consumer did not finish")
                    break
                time.sleep(0.01)
        self._lives.kill(consumer)

    def _look(self, consumer: Life) -> None:
        problems = [str(problem) for problem in verify(self._root)] + reference.check_store(self._root)
        stored = [
            Stored(sender_and_number(found.body), found.queue_id, found.queue_offset)
            for _, found in reference.read_commit_log(self._root)
            if found.topic == TOPIC
        ]
        sends = [each for number, life in enumerate(self._senders) for each in self._sends(number, life)]
        judged = judge(sends, stored, deliveries_of(consumer.number, self._lines(consumer)), [])
        for problem in problems + [f"{name}: {number}" for name, number in judged.faults.items() if number]:
            self._tell(problem)
        self.count.update({"episodes": 1, "sent": judged.sent, "stored": judged.stored, "handled": judged.deliveries})
        self.count.update({name: judged.faults[name] for name in ("lost", "phantom", "unhandled", "unexplained")})

    def _sends(self, sender: int, life: Life) -> list[Send]:
        """Return the sends of a sender but those that it was refused, of which nothing may be stored."""
        lines = self._lines(life)
        refused = {line.split()[1] for line in lines if line.startswith("f ")}
        self.count["sends refused"] += len(refused)
        return list(sends_of(sender, (line for line in lines if line.split()[1] not in refused)))

    def _sent_each(self) -> list[int]:
        return [sum(line.startswith("o ") for line in self._lines(sender)) for sender in self._senders]

    def _wait(self, what: str, before: list[int]) -> bool:
        """Wait until each sender has sent more than before, and tell whether that came in time."""
        until = time.monotonic() + LONGEST_S * slowdown()
        while any(now <= then for now, then in zip(self._sent_each(), before, strict=True)):
            if self._bury():
                return False
            if time.monotonic() > until:
                self._tell(f"it did not come that {what}: {before} sent before, {self._sent_each()} now")
                return False
            time.sleep(0.005)
        return True

    def _let_pass(self, moment_s: float) -> None:
        """Let a moment pass while everybody is at work, and see whether somebody dies of it."""
        until = time.monotonic() + moment_s
        while time.monotonic() < until and not self._bury():
            time.sleep(0.005)

    def _bury(self) -> bool:
        ended = self._lives.ended()
        for life, how in ended.items():
            self._tell(f"{life} ended: {how}")
        return bool(ended)

    def _lines(self, life: Life) -> list[str]:
        return self._lives.lines(life.number)

    def _tell(self, problem: str) -> None:
        self.problems.append(f"{self._case.name}, cycle {self.count['cycles']}: {problem}")


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Do so many cycles, in namespaces of their own."""
    if reason := machine.why_not("xfs"):
        return Result(CLAIM, skipped=reason)
    return apart.run(__name__, CLAIM, seed, rounds, scratch)


def run_here(seed: int, rounds: int, scratch: Path) -> Result:
    """Do so many cycles, in episodes on every kind of disk by turns; file systems that are missing are left out."""
    chance = random.Random(seed)
    result, count, longest_s = Result(CLAIM), Counter[str](), 0.0
    images = apart.memory(scratch, MEMORY_BYTES)
    missing: dict[str, str] = {}
    left, number = rounds, 0
    while left > 0 and not result.problems and len(missing) < len(CASES):
        case, cycles = CASES[number % len(CASES)], min(CYCLES, left, -(-rounds // len(CASES)))
        number += 1
        try:
            with small_disk(case.kind, images) as disk, Lives(scratch / str(number)) as lives:
                episode = Episode(case, disk, lives, chance.getrandbits(32))
                episode.run(cycles)
                if episode.problems:
                    shutil.copytree(disk / "store", scratch / "store")
        except CannotMount as error:
            missing[case.name] = str(error)
            continue
        count.update(episode.count)
        count[f"cycles, {case.name}"] += cycles
        longest_s = max(longest_s, episode.longest_again_s)
        result.problems += episode.problems
        left -= cycles
    if len(missing) == len(CASES):
        return Result(CLAIM, skipped="; ".join(missing.values()))
    result.figures |= count
    result.figures["longest until all senders went on with room, s"] = round(longest_s, 2)
    result.figures |= {f"{name} left out": reason for name, reason in missing.items()}
    return result


RIG = Rig("clones", 240, run)

if __name__ == "__main__":
    apart.main(run_here)
