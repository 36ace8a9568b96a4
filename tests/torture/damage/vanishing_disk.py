"""A disk that vanishes under a store in use and comes back without a boot, at random moments, many times.

On ext4 and xfs by turns, each with a new store for every episode. Senders, a consumer and the housekeeper are at work;
then the disk is gone, which some of them see for a while, all of them are killed, and the disk is mounted again under
the same kernel, as another device. Parts of the store may have reached the disk before, in any order. The next
processes go on with what there is. In the end everything that waits is delivered, and the log is compared with what was
sent.

Between the episodes a thin disk has no room left for what it has promised, so that a flush fails, and has room again.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rmqclient import App
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.message import Message, ReceivedMessage
from rmqclient.sending.producer import Producer
from rmqclient.store import Durability, StoreConfig, boottime, open_store
from rmqclient.store.config import FlushConfig
from rmqclient.store.runtime import shared_state
from tests.crash.campaign import is_quiet
from tests.crash.history import Name
from tests.crash.processes.child_campaign import GROUP, TOPIC, body_of, sender_and_number
from tests.power.disks import machine, thin
from tests.power.disks.dirty_pages import frontiers, write_some
from tests.power.disks.machine import Cut, Machine
from tests.power.life import CONFIG, LAZY, QUEUES
from tests.support.host.load import slowdown
from tests.support.oracle import reference
from tests.torture import apart
from tests.torture.lives import Life, Lives, saying
from tests.torture.result import Result, Rig

CLAIM = (
    "A disk that goes and comes back without a boot, whenever, or that fails a flush, takes no SYNC message whose send "
    "returned: each is stored once, each delayed one delivered once, none comes that was never sent, and every one is "
    "handled."
)
ROUNDS = 8
"""Of one episode, after which the log is judged."""
THIN = 2
"""Thin disks behind each episode."""
SENDERS = 2
MEMORY_BYTES = 2 << 30
RARE = replace(CONFIG, flush=FlushConfig(interval_ms=60_000, thorough_interval_ms=60_000))
"""Nothing is flushed but what a SYNC send flushes."""
CONFIGS = (CONFIG, LAZY, RARE)
BEFORE_S = (0.05, 0.4, 2.5)
"""From the first send to the end of the disk, at most: some delayed messages are delivered, or many."""
GONE_S = (0.0, 0.3)
LONGEST_DELAY_S = 1.5
DRAIN_S = 60.0
PAUSE_S = 0.004


def send(root: Path, evidence: Path, sender: int, seed: int, config: StoreConfig) -> None:
    """Send with SYNC, at once or for later, until the disk is gone."""
    say, chance = saying(evidence), random.Random(seed)
    store = open_store(root, config)
    producer = Producer(store, config=replace(config, durability=Durability.SYNC))
    producer.create_topic(TOPIC, QUEUES)
    number = 0
    while True:
        say(f"i {number} {boottime()}")
        message, way = Message(TOPIC, body_of(sender, number)), chance.randrange(4)
        if way == 0:
            producer.send(message)
        elif way == 1:
            producer.send(message, delay_level=1)
        else:
            producer.send(message, delay=chance.uniform(0.01, LONGEST_DELAY_S))
        say(f"o {number} {boottime()}")
        number += 1
        time.sleep(chance.uniform(0, PAUSE_S))


def consume(root: Path, evidence: Path, config: StoreConfig) -> None:
    """Handle messages until the end."""
    say = saying(evidence)
    app = App(root, config=config)

    @app.handler(TOPIC, group=GROUP)
    def handle(message: ReceivedMessage) -> None:
        sender, number = sender_and_number(message.body) or (-1, -1)
        say(f"h {sender} {number}")

    lease = ConsumerConfig(liveness_interval_ms=20, lease_ms=20_000)
    PushConsumer(open_store(root, config), app.handlers, config=lease).start()
    while True:
        signal.pause()


@dataclass(frozen=True, slots=True)
class Loss:
    """When a disk was lost: the last moment before that, and the first one after it."""

    before_ns: int
    after_ns: int


class Episode:
    """One store, from its first message to the judgement."""

    def __init__(self, computer: Machine, root: Path, lives: Lives, chance: random.Random) -> None:
        self.count: Counter[str] = Counter()
        self.problems: list[str] = []
        self._computer = computer
        self._root = root
        self._lives = lives
        self._chance = chance
        self._senders: list[tuple[Life, Loss | None]] = []
        """Each with the end of its disk."""
        self._consumers: list[Life] = []

    def run(self, rounds: int) -> None:
        """Lose the disk so many times, or until a problem; then judge."""
        for _ in range(rounds):
            self._round()
        if not self.problems:
            self._finish()
            self._judge()

    def _round(self) -> None:
        chance = self._chance
        config = chance.choice(CONFIGS)
        self._consumers.append(self._lives.start("consumer", lambda evidence: consume(self._root, evidence, config)))
        senders = [self._start_sender(len(self._senders) + step, config) for step in range(SENDERS)]
        if chance.random() < 0.9:  # else the disk goes while they open the store
            self._wait_for(senders)
        time.sleep(chance.uniform(0, chance.choice(BEFORE_S)))
        self._write_some()
        for life, how in self._lives.ended().items():
            self._tell(f"{life} ended before the disk was gone: {how}")
        loss = self._lose()
        self._senders += [(sender, loss) for sender in senders]
        self.count["disks lost"] += 1

    def _start_sender(self, sender: int, config: StoreConfig) -> Life:
        seed = self._chance.getrandbits(32)
        return self._lives.start("sender", lambda evidence: send(self._root, evidence, sender, seed, config))

    def _wait_for(self, senders: list[Life]) -> None:
        until = time.monotonic() + DRAIN_S * slowdown()
        while not all(any(line.startswith("o ") for line in self._lives.lines(each.number)) for each in senders):
            if time.monotonic() > until:
                self._tell("a sender did not begin")
                return
            time.sleep(0.005)

    def _write_some(self) -> None:
        """Let parts of the store reach the disk, as the kernel may any time."""
        if self._chance.random() < 0.5:
            for name in ("lock", shared_state.FILE_NAME):
                with suppress(FileNotFoundError):
                    descriptor = os.open(self._root / name, os.O_RDWR)
                    os.fsync(descriptor)
                    os.close(descriptor)
            self.count["runtime files that reached the disk"] += 1
        if self._chance.random() < 0.4:
            write_some(self._root, *frontiers(self._root), self._chance)

    def _lose(self) -> Loss:
        """Let the disk go under everybody, kill them, and mount it again."""
        how = self._chance.choices((Cut.NOTHING, Cut.JOURNAL, Cut.ALL), (4, 4, 1))[0]
        loss = Loss(self._computer.cut(how), boottime())
        time.sleep(self._chance.uniform(0, self._chance.choice(GONE_S)))  # they see that it is gone
        self.count["processes that ended by themselves on a dead disk"] += len(self._lives.ended())
        for life in self._lives.alive:
            self._lives.kill(life)
        self._computer.plug_in()
        return loss

    def _finish(self) -> None:
        """Let everything be delivered and handled by processes of whom nobody dies."""
        self._consumers.append(self._lives.start("consumer", lambda evidence: consume(self._root, evidence, CONFIG)))
        sender = self._start_sender(len(self._senders), CONFIG)
        self._senders.append((sender, None))
        self._wait_for([sender])
        self._lives.kill(sender)
        if self._lives.end(self._lives.start("watcher", lambda _: watch(self._root)), 0, DRAIN_S * slowdown()):
            self._tell("not everything was delivered and handled")
        for life, how in self._lives.ended().items():
            self._tell(f"{life} ended: {how}")
        for life in self._lives.alive:
            self._lives.kill(life)

    def _judge(self) -> None:
        if problems := reference.check_store(self._root):
            for problem in problems:
                self._tell(problem)
            return
        records = reference.read_commit_log(self._root)
        stored = Counter(sender_and_number(found.body) for _, found in records if found.topic == TOPIC)
        handled = Counter(
            (int(sender), int(number))
            for consumer in self._consumers
            for _, sender, number in (line.split() for line in self._lives.lines(consumer.number))
        )
        begun: set[Name] = set()
        for sender, (life, loss) in enumerate(self._senders):
            begun |= self._judge_sender(sender, self._lives.lines(life.number), loss, stored)
        self._tell_of("stored or delivered twice", [name for name, times in stored.items() if name and times > 1])
        self._tell_of("stored, and never sent", [name for name in stored if name and name not in begun])
        self._tell_of("never handled", [name for name in stored if name and name not in handled])
        if stored[None]:
            self._tell(f"{stored[None]} damaged bodies")
        self.count.update({"episodes": 1, "stored": stored.total(), "handled": handled.total()})
        self.count["handled again"] += handled.total() - len(handled)

    def _judge_sender(
        self, sender: int, lines: list[str], loss: Loss | None, stored: Counter[Name | None]
    ) -> set[Name]:
        """Judge what a sender said; return the messages that it began to send."""
        begun_ns: dict[Name, int] = {}
        lost = []
        for line in lines:
            kind, number, at_ns = line.split()
            name = sender, int(number)
            if kind == "i":
                begun_ns[name] = int(at_ns)
            elif loss is not None and begun_ns[name] > loss.after_ns:
                self._tell(f"message {name} was acknowledged on a disk that was gone")
            elif name in stored:
                self.count["acknowledged and there"] += 1
            elif loss is not None and int(at_ns) > loss.before_ns:
                # fdatasync of ext4 can return 0 while FS_IOC_SHUTDOWN runs, and what it wrote is dropped
                self.count["acknowledged while the disk went, and lost"] += 1
            else:
                lost.append(name)
        self._tell_of("lost", lost)
        return set(begun_ns)

    def _tell_of(self, what: str, names: list[Name]) -> None:
        if names:
            self._tell(f"{what}: {len(names)}, such as {names[:5]}")

    def _tell(self, problem: str) -> None:
        self.problems.append(f"{self._computer.file_system}, disk {self.count['disks lost']}: {problem}")


def watch(root: Path) -> None:
    """Wait until everything is delivered and handled."""
    with open_store(root, CONFIG, housekeeping=False) as store:
        while not is_quiet(store):
            time.sleep(0.01)


def fail_a_flush(scratch: Path, chance: random.Random, count: Counter[str]) -> list[str]:
    """Let the pool of a thin disk run out at a flush; return what is wrong with the store that is opened after it."""
    scratch.mkdir()
    ways = thin.random_ways(chance)
    found = thin.run_out(scratch, ways)
    if found["ended"][0] == thin.TOO_SLOW:
        count["thin disks that ran out too late"] += 1
        return []
    count["flushes failed on thin disks"] += 1
    count["acknowledged and there"] += len(ways)
    expected = {"ended": [-signal.SIGKILL, 0], "lost": [], "twice": [], "later": 2, "problems": []}
    return [] if found == expected else [f"a thin disk, {ways}: {found}"]


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Lose so many disks, in namespaces of their own."""
    missing = [reason for kind in machine.MAKING if (reason := machine.why_not(kind))]
    if missing:
        return Result(CLAIM, skipped="; ".join(missing))
    return apart.run(__name__, CLAIM, seed, rounds, scratch)


def run_here(seed: int, rounds: int, scratch: Path) -> Result:
    """Lose so many disks, in episodes on each file system by turns."""
    chance, result, count = random.Random(seed), Result(CLAIM), Counter[str]()
    images = apart.memory(scratch, MEMORY_BYTES)
    kinds = list(machine.MAKING)
    left = rounds
    for number in range(rounds):
        kind, share = kinds[number % len(kinds)], min(ROUNDS, left, -(-rounds // len(kinds)))
        if not share or result.problems:
            break
        directory = images / str(number)
        directory.mkdir()
        computer = Machine(kind, directory)
        with Lives(scratch / str(number)) as lives:
            episode = Episode(computer, computer.directory / "store", lives, chance)
            episode.run(share)
            if episode.problems:
                shutil.copytree(computer.directory / "store", scratch / "store", ignore_dangling_symlinks=True)
        computer.close()
        count.update(episode.count)
        count[f"disks lost, {kind}"] += share
        result.problems += episode.problems
        left -= share
        for disk in range(THIN):
            result.problems += fail_a_flush(images / f"{number} thin {disk}", chance, count)
    result.figures |= count
    return result


RIG = Rig("vanishing-disk", 120, run)

if __name__ == "__main__":
    apart.main(run_here)
