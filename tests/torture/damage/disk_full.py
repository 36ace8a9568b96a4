"""Disks that run full under a store in use, and get room again, many times over.

On small file systems of several kinds, by turns, each with a new store for every episode. Two senders and a consumer
live through the episode; one sender waits for the disk with each message. In a cycle the disk is filled, the senders
send until they are told, the consumer goes on, the offsets are written and the log is flushed, and the disk is freed.
At the end of an episode the last process leaves, and comes back, on a full disk.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rmqclient.store import MessageStore, boottime, open_store
from rmqclient.store.errors import QueueError, StoreFull
from rmqclient.store.inspect.verify import verify
from tests.crash.campaign import is_drained
from tests.crash.history import Stored, deliveries_of, judge, sends_of
from tests.crash.processes.child_campaign import TOPIC, consume, sender_and_number
from tests.support.host.load import slowdown
from tests.support.host.small_disks import KINDS, CannotMount, Filler, small_disk
from tests.support.oracle import reference
from tests.torture.damage.child_disk_full import SMALL_FILES, Sender, check
from tests.torture.result import Result, Rig

CLAIM = (
    "On a full disk a sender gets StoreFull, never a signal; consumers go on; sends work again within a second of room "
    "coming back; nothing acknowledged is lost and nothing refused appears."
)

CYCLES = 10
"""Of one episode, after which the store is verified."""

SENDERS = 2
LONGEST_WAIT_S = 15.0
AGAIN_WITHIN_S = 1.0
LARGEST_REST = 200_000
"""Bytes left when the disk is called full: the next file may still fit, or not."""


class Unexpected(Exception):
    """Something that refutes the claim; the episode ends."""


@dataclass(slots=True)
class Child:
    """A process of an episode. ``orders`` and ``told`` are the ends of its pipes, -1 where it has none."""

    number: int
    pid: int
    orders: int = -1
    told: int = -1
    unread: bytes = b""


@dataclass(slots=True)
class Figures:
    """What all episodes have come to."""

    count: Counter[str] = field(default_factory=Counter)
    longest_ms: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def took(self, what: str, ns: float) -> None:
        """Keep the longest time."""
        self.longest_ms[what] = max(self.longest_ms.get(what, 0.0), round(ns / 1e6, 1))


class Episode:
    """One store on a small disk, from its first message to its last look."""

    def __init__(self, disk: Path, evidence: Path, kind: str, seed: int, figures: Figures) -> None:
        self._root = disk / "store"
        self._evidence = evidence
        self._kind = kind
        self._chance = random.Random(seed)
        self._figures = figures
        self._filler = Filler(disk, inodes=kind == "few inodes")
        self._children: list[Child] = []

    def run(self, cycles: int) -> None:
        """Do so many cycles. What refutes the claim goes to the figures."""
        try:
            self._live(cycles)
            self._leave()
            self._look()
        except (Unexpected, QueueError, OSError, AssertionError) as error:
            self._figures.problems.append(f"{self._kind}: {type(error).__name__}: {error}; {self._last_words()}")
        finally:
            for child in list(self._children):
                self._kill(child)

    def _live(self, cycles: int) -> None:
        for number in range(SENDERS):
            self._start_sender(number)
        self._start_consumer(SENDERS)
        for sender in self._senders:
            self._expect(sender, "d")
        store = open_store(self._root, SMALL_FILES, housekeeping=False)
        for _ in range(cycles):
            self._cycle(store)
        self._wait_for("the consumer", lambda: is_drained(store))
        for sender in self._senders:
            self._end(sender)
        self._kill(self._children[0])
        self._fill_for_the_last()
        self._refused_or_done("closings", store.close)

    def _cycle(self, store: MessageStore) -> None:
        began = boottime()
        rest = self._chance.randrange(3 if self._kind == "few inodes" else LARGEST_REST)
        self._filler.fill(rest)
        for sender in self._senders:
            os.write(sender.orders, b"b")
        for sender in self._senders:
            while self._expect(sender, "fd") == "d":  # there was room for a whole burst
                os.write(sender.orders, b"b")
        self._figures.count["senders told"] += SENDERS
        started = boottime()
        self._wait_for("the consumer on a full disk", lambda: is_drained(store))
        self._figures.took("consumer done on a full disk", boottime() - started)
        self._refused_or_done("offset files", store.offsets.persist)
        self._flush(store)
        if self._chance.random() < 0.2:
            self._refused_or_done("producers opened", lambda: open_store(self._root, housekeeping=False).close())
        freed = boottime()
        self._filler.free()
        for sender in self._senders:
            worked = self._expect(sender, "w")
            again = int(worked.split()[1]) - freed
            self._figures.took(f"sending again, {self._kind}", again)
            if again > AGAIN_WITHIN_S * 1e9 and again > AGAIN_WITHIN_S * 1e9 * slowdown():
                self._figures.problems.append(f"{self._kind}: a send worked again only after {again / 1e9:.2f} s")
        for sender in self._senders:
            self._expect(sender, "d")
        self._figures.count["cycles"] += 1
        self._figures.took(f"cycle, {self._kind}", boottime() - began)

    def _flush(self, store: MessageStore) -> None:
        """What is stored gets onto a full disk; only a checkpoint file that is not there yet may be refused."""
        store.flusher.wait_until_flushed(store.state.published_to)
        self._refused_or_done("checkpoints", store.flusher.flush_thorough)

    def _fill_for_the_last(self) -> None:
        if self._chance.random() < 0.7:
            self._filler.fill()

    def _leave(self) -> None:
        """Come back on a full disk, which may be refused, and then when there is room, which may not."""
        rebooted = self._chance.random() < 0.5
        if rebooted:
            (self._root / "shared").unlink()  # everything is looked at again
        self._refused_or_done("openings by the first one", lambda: open_store(self._root, housekeeping=False).close())
        self._filler.free()
        with open_store(self._root, housekeeping=False) as store:
            if not rebooted and not is_drained(store):
                raise Unexpected("the group does not go on where it was")

    def _refused_or_done(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
        except StoreFull as error:
            check(error, self._root)
            self._figures.count[f"{what} refused"] += 1
        else:
            self._figures.count[f"{what} done"] += 1

    def _look(self) -> None:
        problems = [str(problem) for problem in verify(self._root)] + reference.check_store(self._root)
        sends = [send for number in range(SENDERS) for send in sends_of(number, self._lines(number))]
        records = [found for _, found in reference.read_commit_log(self._root) if found.topic == TOPIC]
        stored = [Stored(sender_and_number(found.body), found.queue_id, found.queue_offset) for found in records]
        judged = judge(sends, stored, deliveries_of(SENDERS, self._lines(SENDERS)), [])
        problems += [f"{name}: {number}" for name, number in judged.faults.items() if number]
        self._figures.problems += [f"{self._kind}: {problem}" for problem in problems]
        self._figures.count.update(
            {"episodes": 1, "sent": judged.sent, "stored": judged.stored, "deliveries": judged.deliveries}
        )
        self._figures.count.update({name: judged.faults[name] for name in ("lost", "phantom", "damaged", "unhandled")})

    # --- processes --------------------------------------------------------------------------------

    @property
    def _senders(self) -> list[Child]:
        return [child for child in self._children if child.orders >= 0]

    def _start_sender(self, number: int) -> None:
        wait_for, orders = os.pipe()
        told, tell = os.pipe()
        seed = self._chance.getrandbits(32)

        def live() -> None:
            os.close(orders)
            Sender(self._root, self._evidence / str(number), number, seed, tell).serve(wait_for)

        pid = self._fork(number, live)
        os.close(wait_for)
        os.close(tell)
        self._children.append(Child(number, pid, orders, told))

    def _start_consumer(self, number: int) -> None:
        ready, say_ready = os.pipe()
        pid = self._fork(number, lambda: consume(self._root, self._evidence / str(number), say_ready, SMALL_FILES))
        os.close(say_ready)
        self._children.append(Child(number, pid))
        if os.read(ready, 1) != b"r":
            raise Unexpected("the consumer did not come up")
        os.close(ready)

    def _fork(self, number: int, live: Callable[[], None]) -> int:
        pid = os.fork()
        if pid:
            return pid
        status = 1
        for sender in self._senders:
            os.close(sender.orders)  # it would not see the end of its orders
        try:
            with (self._evidence / f"{number}.errors").open("w") as errors:
                os.dup2(errors.fileno(), 2)
            live()
            status = 0
        except BaseException:  # noqa: BLE001 - whatever it is, the child must not return into the life of its parent
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(status)

    def _expect(self, child: Child, kinds: str) -> str:
        """Return the next line that a sender says of one of these kinds, passing over others."""
        deadline = time.monotonic() + LONGEST_WAIT_S
        while True:
            line, newline, rest = child.unread.partition(b"\n")
            if newline:
                child.unread = rest
                if line[:1] in kinds.encode():
                    return line.decode()
                continue
            if not select.select([child.told], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise Unexpected(f"sender {child.number} did not say {kinds!r} within {LONGEST_WAIT_S:g} s")
            said = os.read(child.told, 4_096)
            if not said:
                raise Unexpected(f"sender {child.number} ended: {self._ended(child)}")
            child.unread += said

    def _end(self, sender: Child) -> None:
        os.close(sender.orders)
        sender.orders = -1
        while os.read(sender.told, 4_096):
            pass
        if status := self._ended(sender):
            raise Unexpected(f"sender {sender.number} ended with {status}")

    def _ended(self, child: Child) -> int:
        _, status = os.waitpid(child.pid, 0)
        self._children.remove(child)
        for descriptor in (child.orders, child.told):
            if descriptor >= 0:
                os.close(descriptor)
        return os.waitstatus_to_exitcode(status)

    def _kill(self, child: Child) -> None:
        os.kill(child.pid, signal.SIGKILL)
        status = self._ended(child)
        if status != -signal.SIGKILL:
            self._figures.problems.append(f"{self._kind}: process {child.number} had ended with {status}")

    @staticmethod
    def _wait_for(whom: str, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LONGEST_WAIT_S
        while not is_done():
            if time.monotonic() > deadline:
                raise Unexpected(f"{whom} did not finish within {LONGEST_WAIT_S:g} s")
            time.sleep(0.002)

    def _lines(self, number: int) -> list[str]:
        path = self._evidence / str(number)
        text = path.read_text(encoding="ascii") if path.exists() else ""
        return text.rpartition("\n")[0].splitlines()

    def _last_words(self) -> str:
        words = []
        for path in sorted(self._evidence.glob("*.errors")):
            words += [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line][-1:]
        return json.dumps(words)


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Do so many cycles of filling and freeing, in episodes on every kind of disk by turns."""
    chance = random.Random(seed)
    figures = Figures()
    result = Result(CLAIM, problems=figures.problems)
    left, number = rounds, 0
    while left > 0:
        directory = scratch / str(number)
        directory.mkdir()
        kind = KINDS[number % len(KINDS)]
        cycles = min(CYCLES, left, -(-rounds // len(KINDS)))
        try:
            with small_disk(kind, directory) as disk:
                Episode(disk, directory, kind, chance.getrandbits(32), figures).run(cycles)
        except CannotMount as error:
            return Result(CLAIM, skipped=str(error))
        figures.count[f"cycles on {kind}"] += cycles
        left -= cycles
        number += 1
    result.figures |= figures.count
    result.figures |= {f"longest {what}, ms": longest for what, longest in sorted(figures.longest_ms.items())}
    return result


RIG = Rig("disk-full", 1_000, run)
