"""Random kills of real senders and consumers that share one store, and the judgement in the end.

``python -m tests.crash.campaign --rounds 1000 --seed 7`` prints the figures of a campaign and ends with status 1 when
anything was lost, invented, damaged, left unhandled, or delivered again without need.

A round starts what is missing, lets the senders send a burst, and kills some of the processes, or all, at a random
moment, with ``kill -9``. The store is the same from the first round to the last.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from rmqclient.failures.retry import retry_topic
from rmqclient.store import SCHEDULE_TOPIC, MessageStore, open_store
from tests.crash.history import Delivery, Figures, Name, Send, Stored, deliveries_of, judge, sends_of
from tests.crash.processes.child_campaign import GROUP, TOPIC, consume, send, sender_and_number
from tests.crash.processes.pid_namespaces import fork_into_namespace
from tests.support.oracle import reference
from tests.support.oracle.views import published_records, queued_records
from tests.support.stores import waiting

SENDERS = 2
CONSUMERS = 2
LONGEST_WAITS_S = (0.002, 0.004, 0.03)
"""From the begin of a burst to the kill: in the burst, in the handling of it, or when most is quiet again."""

DRAIN_S = 120.0


@dataclass(slots=True)
class Child:
    """A process of the campaign, and what a successor of it needs to know."""

    number: int
    pid: int
    is_sender: bool
    ready: int
    bursts: int
    """End of a pipe: each ``b`` asks a sender for a burst, and an ``e`` lets it end."""


class Campaign:
    """One store, its processes, and their evidence."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.root = directory / "store"
        self._evidence = directory / "evidence"
        self._evidence.mkdir(parents=True)
        self._chance = random.Random(seed)
        self._children: list[Child] = []
        self._started = 0
        self._senders: list[int] = []
        self._consumers: list[int] = []
        self._killed: list[int] = []

    def run(self, rounds: int) -> Figures:
        """Do so many rounds, let the consumers finish, look twice, and return the figures."""
        try:
            for _ in range(rounds):
                self._round()
            kills = len(self._killed)
            problems = self._finish()
        finally:
            for child in list(self._children):
                self._kill(child)
        figures = judge(self._sends(), self._stored(), self._deliveries(), self._killed, self._sent_back())
        figures.rounds, figures.kills = rounds, kills
        figures.problems += problems + reference.check_store(self.root)
        return figures

    def _round(self) -> None:
        chance = self._chance
        new = self._start_missing()
        if chance.random() < 0.85:  # else some are killed while they open the store
            self._wait_until_ready(new)
        for child in self._children:
            if child.is_sender:
                os.write(child.bursts, b"b")
        time.sleep(chance.uniform(0, chance.choice(LONGEST_WAITS_S)))  # the moment of the kill
        self._strike()

    def _strike(self) -> None:
        chance = self._chance
        share = 1.0 if chance.random() < 0.1 else chance.choice((0.25, 0.5, 0.75))
        for child in [child for child in self._children if chance.random() < share]:
            self._kill(child)

    def _start_missing(self) -> list[Child]:
        senders = sum(child.is_sender for child in self._children)
        consumers = len(self._children) - senders
        new = [self._start(is_sender=True) for _ in range(SENDERS - senders)]
        new += [self._start(is_sender=False) for _ in range(CONSUMERS - consumers)]
        self._chance.shuffle(self._children)
        return new

    def _start(self, *, is_sender: bool) -> Child:
        number = self._started
        self._started += 1
        (self._senders if is_sender else self._consumers).append(number)
        ready, say_ready = os.pipe()
        wait_for_burst, bursts = os.pipe()
        seed = self._chance.getrandbits(32)
        pid = self._fork()
        if pid == 0:
            os.close(bursts)
            evidence = self._evidence_of(number)
            if is_sender:
                _live(lambda: send(self.root, evidence, number, seed, say_ready, wait_for_burst))
            _live(lambda: consume(self.root, evidence, say_ready))
        os.close(say_ready)
        os.close(wait_for_burst)
        child = Child(number, pid, is_sender, ready, bursts)
        self._children.append(child)
        return child

    def _fork(self) -> int:
        return os.fork()

    def _wait_until_ready(self, children: list[Child]) -> None:
        for child in children:
            if os.read(child.ready, 1) != b"r":
                raise RuntimeError(f"process {child.number} of the campaign did not come up")

    def _kill(self, child: Child) -> None:
        os.kill(child.pid, signal.SIGKILL)
        status = self._ended(child)
        self._killed.append(child.number)
        if not os.WIFSIGNALED(status):
            raise RuntimeError(f"process {child.number} of the campaign ended by itself, with status {status}")

    def _end(self, sender: Child) -> None:
        """Let a sender end behind its last burst."""
        os.write(sender.bursts, b"e")
        if status := self._ended(sender):
            raise RuntimeError(f"sender {sender.number} of the campaign ended with status {status}")

    def _ended(self, child: Child) -> int:
        _, status = os.waitpid(child.pid, 0)
        os.close(child.ready)
        os.close(child.bursts)
        self._children.remove(child)
        return status

    def _finish(self) -> list[str]:
        """Let everything be sent and handled, then look as a reader that repairs nothing."""
        self._wait_until_ready(self._start_missing())
        for child in [child for child in self._children if child.is_sender]:
            self._end(child)
        with open_store(self.root, housekeeping=False) as store:
            deadline = time.monotonic() + DRAIN_S
            while not (is_done := is_drained(store)) and time.monotonic() < deadline:
                time.sleep(0.01)
            problems = [] if is_done else ["the consumers did not finish"]
            problems += look_at(store)
            for child in list(self._children):
                self._kill(child)
        return problems

    def _evidence_of(self, number: int) -> Path:
        return self._evidence / f"{number}"

    def _lines(self, number: int) -> list[str]:
        path = self._evidence_of(number)
        text = path.read_text(encoding="ascii") if path.exists() else ""
        return text.rpartition("\n")[0].splitlines()  # a kill can cut a write where a page of the file ends

    def _sends(self) -> list[Send]:
        return [each for number in self._senders for each in sends_of(number, self._lines(number))]

    def _deliveries(self) -> list[Delivery]:
        return [each for number in self._consumers for each in deliveries_of(number, self._lines(number))]

    def _stored(self) -> list[Stored]:
        return [
            Stored(sender_and_number(found.body), found.queue_id, found.queue_offset)
            for _, found in reference.read_commit_log(self.root)
            if found.topic == TOPIC
        ]

    def _sent_back(self) -> list[Name]:
        """The messages that were sent back after two deaths, once for each copy."""
        found = [found for _, found in reference.read_commit_log(self.root) if found.topic == retry_topic(GROUP)]
        return [sender_and_number(each.body) or (-1, -1) for each in found]


class CampaignOfContainers(Campaign):
    """Most processes are process 1 of a PID namespace of their own; some stand still while others are killed."""

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory, seed)
        self.stops = 0

    def _fork(self) -> int:
        return os.fork() if self._chance.random() < 0.25 else fork_into_namespace()

    def _strike(self) -> None:
        chance = self._chance
        stopped = [child for child in self._children if chance.random() < 0.4]
        for child in stopped:
            os.kill(child.pid, signal.SIGSTOP)
        self.stops += len(stopped)
        time.sleep(chance.uniform(0, 0.06))  # others come to wait for a lock, and look whether its owner lives
        super()._strike()
        time.sleep(chance.uniform(0, 0.06))
        for child in stopped:
            if child in self._children:
                os.kill(child.pid, signal.SIGCONT)


def is_drained(store: MessageStore) -> bool:
    """Tell whether the group has acknowledged every message of the topic, and what was sent back for a retry."""
    end = store.state.published_to
    ends = {queue: store.topics.max_offset(queue) for queue in store.topics.all_queues()}
    delayed = sum(end for queue, end in ends.items() if queue.topic == SCHEDULE_TOPIC)
    delivered = sum(end for queue, end in ends.items() if queue.topic == retry_topic(GROUP))
    return delayed == delivered and _has_acknowledged_all(store, end)


def is_quiet(store: MessageStore) -> bool:
    """Tell the same where all kinds of messages wait for their time: nothing waits any more."""
    end = store.state.published_to
    waits = any(waiting(store).values()) or any(True for _ in store.timer.pending())
    return not waits and _has_acknowledged_all(store, end)


def _has_acknowledged_all(store: MessageStore, end: int) -> bool:
    """Tell whether that is so and the log still ends there.

    What was in a handler during the look at what waits may be sent back, and acknowledged, before this look.
    """
    taken = [queue for queue in store.topics.all_queues() if queue.topic in (TOPIC, retry_topic(GROUP))]
    ends = [store.topics.max_offset(queue) for queue in taken]
    slots = [store.groups.find(GROUP, store.topics.slot(queue)) for queue in taken]
    has_all = bool(taken) and [slot.committed_offset if slot else -1 for slot in slots] == ends
    return has_all and store.state.published_to == end


def look_at(store: MessageStore) -> list[str]:
    """Look at every published record and entry while others have the store open; return what is wrong.

    Something may be appended meanwhile: then the look is taken again.
    """
    while True:
        end = store.state.published_to
        problems = _seen_in(store)
        if store.state.published_to == end:
            return problems


def _seen_in(store: MessageStore) -> list[str]:
    try:
        published = published_records(store)
        queued = sum(len(queued_records(store, queue, published)) for queue in store.topics.all_queues())
    except AssertionError as error:
        return [str(error)]
    return [] if len(published) == queued else [f"{len(published)} records are published and {queued} entries"]


def _live(life: Callable[[], None]) -> None:
    """Live in a forked child; never returns."""
    status = 1
    try:
        life()
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, the child must not return into the life of its parent
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)


def main() -> int:
    """Run a campaign from the command line."""
    parser = argparse.ArgumentParser(description="Kill senders and consumers at random, and judge what is left.")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--containers", action="store_true", help="in PID namespaces of their own")
    parser.add_argument("--directory", help="an existing one, to keep the store and the evidence in")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    logging.getLogger("rmqclient.store.files.file_system").setLevel(
        logging.ERROR
    )  # that a store in memory does not last is no news
    with nullcontext(arguments.directory) if arguments.directory else tempfile.TemporaryDirectory() as directory:
        started = time.monotonic()
        kind = CampaignOfContainers if arguments.containers else Campaign
        figures = kind(Path(directory), arguments.seed).run(arguments.rounds)
        print(f"{figures}\n{arguments.rounds / (time.monotonic() - started):.1f} rounds a second")
    return 1 if any(figures.faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
