"""Messages with delays from 10 ms to 10 minutes, while producers, consumers and housekeepers are killed.

One round stands for a thousand messages. The longest delay grows with their number, up to the ten minutes of the full
size, and the sending takes a quarter of it. Beside that it is measured what a housekeeper needs in memory when as many
messages wait, and how soon a new one delivers then.
"""

from __future__ import annotations

import datetime
import os
import random
import re
import shutil
import signal
import sys
import time
import traceback
from bisect import insort
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rmqclient import Message, Producer
from rmqclient.store import MessageStore, open_store
from tests.crash.campaign import is_drained
from tests.crash.processes.child_campaign import TOPIC
from tests.support.oracle import reference
from tests.torture.kills import delay_history
from tests.torture.kills.child_delays import CONFIG, Share, consume, keep_house, now_ms, parts_of, produce
from tests.torture.kills.delay_history import Copy, Fate, Handled, Judgement, Name, fates_of, handled_of
from tests.torture.result import Result, Rig

CLAIM = (
    "Whichever process is killed, and whenever, no message with a delay is early, none is lost, none is delivered "
    "twice, none that was cancelled comes, and only what a killed consumer was handling is handled again."
)
MESSAGES_A_ROUND = 1_000
PRODUCERS, CONSUMERS, HOUSEKEEPERS = 3, 2, 2
SHORTEST_S, LONGEST_S = 0.01, 600.0
SENDING_SHARE = 0.25
KILLS_OF_FULL_SIZE = 150
ALL_DIE = 0.1
DRAIN_S = 300.0
WHOLE_CHECK_ROUNDS = 50
"""Up to this size the reference codec checks the whole store afterwards, too; it would take as long as the rig."""


@dataclass(slots=True)
class Child:
    """A process of the rig."""

    role: str
    number: int
    """Of this life, for its evidence."""
    pid: int
    share: Share | None = None


class Delays:
    """One store, its processes and their evidence."""

    def __init__(self, scratch: Path, seed: int, rounds: int) -> None:
        self.root = scratch / "store"
        self._evidence = scratch / "evidence"
        self._evidence.mkdir()
        self._chance = random.Random(seed)
        self._rounds = rounds
        self.longest_s = min(LONGEST_S, max(3.0, LONGEST_S * rounds / 1_000))
        self._children: list[Child] = []
        self._lives = 0
        self._producers: dict[int, list[int]] = {}
        self._consumers: list[int] = []
        self.kills: Counter[str] = Counter()
        self._killed: set[int] = set()
        self._house_kills_ms: list[int] = []
        self._in_flight: set[Name] = set()
        self._sent_ms = 0
        self.most_resident_mib = 0.0

    def run(self) -> Judgement:
        """Send, kill, let everything come, and judge."""
        try:
            self._start_all()
            self._kill_until(lambda: not any(child.role == "producer" for child in self._children))
            self._sent_ms = now_ms()
            waits_until = time.monotonic() + self.longest_s
            self._kill_until(lambda: time.monotonic() > waits_until)
            problems = self._finish()
        finally:
            for child in list(self._children):
                self._end(child)
        judgement = self._judge()
        judgement.problems += problems
        if self._rounds <= WHOLE_CHECK_ROUNDS:
            judgement.problems += [str(each) for each in reference.check_store(self.root)]
        return judgement

    def _start_all(self) -> None:
        with open_store(self.root, CONFIG, housekeeping=False) as store, Producer(store) as first:
            # the timer has its queue then
            first.send(Message("first", b""), delay=datetime.timedelta(milliseconds=1))
        total = self._rounds * MESSAGES_A_ROUND
        for _ in range(HOUSEKEEPERS):
            self._start("housekeeper")
        for _ in range(CONSUMERS):
            self._start("consumer")
        for producer in range(PRODUCERS):
            self._producers[producer] = []
            numbers = range(total * producer // PRODUCERS, total * (producer + 1) // PRODUCERS)
            self._start("producer", self._share(producer, numbers))

    def _share(self, producer: int, numbers: range) -> Share:
        sending_s = self.longest_s * SENDING_SHARE
        return Share(
            producer=producer,
            numbers=numbers,
            per_second=self._rounds * MESSAGES_A_ROUND / PRODUCERS / sending_s,
            shortest_s=SHORTEST_S,
            longest_s=self.longest_s,
            seed=self._chance.getrandbits(32),
        )

    def _start(self, role: str, share: Share | None = None) -> None:
        number = self._lives
        self._lives += 1
        evidence = self._evidence / str(number)
        lives: dict[str, Callable[[], None]] = {
            "housekeeper": partial(keep_house, self.root, evidence),
            "consumer": partial(consume, self.root, evidence),
        }
        if role == "consumer":
            self._consumers.append(number)
        if share is not None:
            self._producers[share.producer].append(number)
            lives["producer"] = partial(produce, self.root, evidence, share)
        pid = os.fork()
        if pid == 0:
            _live(lives[role])
        self._children.append(Child(role, number, pid, share))

    def _kill_until(self, is_over: Callable[[], bool]) -> None:
        pause_s = max(0.3, self.longest_s * (1 + SENDING_SHARE) / KILLS_OF_FULL_SIZE)
        next_kill = time.monotonic() + self._chance.uniform(0, 2 * pause_s)
        while not is_over():
            time.sleep(0.02)
            self._bury_producers()
            if time.monotonic() > next_kill:
                self._kill_some()
                next_kill = time.monotonic() + self._chance.uniform(0, 2 * pause_s)

    def _bury_producers(self) -> None:
        """See which producers have ended because they have sent everything."""
        for child in [child for child in self._children if child.role == "producer"]:
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self._children.remove(child)
                if status:
                    raise RuntimeError(f"a producer ended with status {status}")

    def _kill_some(self) -> None:
        """Kill one process, or now and then all; then start as many."""
        victims = list(self._children) if self._chance.random() < ALL_DIE else [self._victim()]
        self.kills["kills of all at once"] += len(victims) > 1
        for child in victims:
            if child.role == "housekeeper":
                self._look_at_memory(child)
                if self._has_role(child):
                    insort(self._house_kills_ms, now_ms())
                    self.kills["kills of whoever was housekeeper"] += 1
            self.kills[f"kills of {child.role}s"] += 1
            self._killed.add(child.number)
            self._end(child)
        for child in victims:
            self._start(child.role, None if child.share is None else self._rest_of(child, child.share))

    def _victim(self) -> Child:
        role = self._chance.choice(sorted({child.role for child in self._children}))
        of_role = [child for child in self._children if child.role == role]
        child = self._chance.choice(of_role)
        if role == "housekeeper" and self._chance.random() < 0.8:  # rather the one that is it
            return next((each for each in of_role if self._has_role(each)), child)
        return child

    def _rest_of(self, child: Child, share: Share) -> Share:
        """Return what a killed producer leaves; the message behind the last one that it told of was in flight."""
        told = [int(line.split()[1]) for line in self._lines(child.number) if line.startswith("s ")]
        following = told[-1] + 1 if told else share.numbers.start
        if following < share.numbers.stop:
            self._in_flight.add((share.producer, following))
        return self._share(share.producer, range(following + 1, share.numbers.stop))

    def _has_role(self, child: Child) -> bool:
        return self._lines(child.number) == ["h"]

    def _look_at_memory(self, child: Child) -> None:
        self.most_resident_mib = max(self.most_resident_mib, memory_of(child.pid)["anonymous"])

    def _end(self, child: Child) -> None:
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        _, status = os.waitpid(child.pid, 0)
        self._children.remove(child)
        has_sent_all = child.role == "producer" and status == 0  # just before the kill
        if not os.WIFSIGNALED(status) and not has_sent_all:
            raise RuntimeError(f"a {child.role} ended by itself, with status {status}")

    def _finish(self) -> list[str]:
        """Wait until nothing waits and all is handled."""
        for child in [child for child in self._children if child.role == "housekeeper"]:
            self._look_at_memory(child)
        with open_store(self.root, CONFIG, housekeeping=False) as store:
            deadline = time.monotonic() + DRAIN_S
            while time.monotonic() < deadline:
                if next(iter(store.timer.pending()), None) is None and is_drained(store):
                    return []
                time.sleep(0.1)
            left = sum(1 for _ in store.timer.pending())
            return [f"after {DRAIN_S:.0f} s {left} messages still waited, or were not handled"]

    def _judge(self) -> Judgement:
        fates: dict[Name, Fate] = {}
        for producer, lives in self._producers.items():
            for number in lives:
                fates |= fates_of(producer, self._lines(number))
        handled: list[Handled] = [
            call for number in self._consumers for call in handled_of(number, self._lines(number))
        ]
        with open_store(self.root, CONFIG, housekeeping=False) as store:
            copies = copies_in(store)
        self.kills["messages sent"] = len(fates)
        self.kills["cancelled"] = sum(fate is Fate.CANCELLED for fate in fates.values())
        self.kills["too late to cancel"] = sum(fate is Fate.NOT_CANCELLED for fate in fates.values())
        self.kills["delivered"] = len(copies)
        return delay_history.judge(
            fates, self._in_flight, copies, handled, self._killed, self._house_kills_ms, self._sent_ms
        )

    def _lines(self, number: int) -> list[str]:
        path = self._evidence / str(number)
        text = path.read_text(encoding="ascii") if path.exists() else ""
        return text.rpartition("\n")[0].splitlines()  # a kill can cut a write where a page of the file ends


def copies_in(store: MessageStore) -> list[Copy]:
    """Return what was delivered, as the log has it."""
    found = []
    for queue in store.topics.queues(TOPIC):
        for queue_offset in range(store.topics.max_offset(queue)):
            message = store.messages.at(queue, queue_offset)
            producer, number, due_ms = parts_of(message.body)
            found.append(Copy((producer, number), due_ms, message.born_timestamp, message.store_timestamp))
    return found


def lateness(when: str, found: Counter[int]) -> dict[str, int | float | str]:
    """Return how late messages were stored in their topic."""
    return {
        f"lateness {when}, messages": found.total(),
        f"lateness {when}, 50 %, ms": delay_history.percentile(found, 0.5),
        f"lateness {when}, 99 %, ms": delay_history.percentile(found, 0.99),
        f"lateness {when}, most, ms": max(found, default=0),
        f"lateness {when}": delay_history.histogram(found),
    }


def memory_of(pid: int) -> dict[str, float]:
    """Return what a process has in memory, in MiB: of its own, and with the files that it maps."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    own, whole = (re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE) for name in ("RssAnon", "VmRSS"))
    return {"anonymous": int(own[1]) / 1024 if own else 0.0, "whole": int(whole[1]) / 1024 if whole else 0.0}


def memory_with(messages: int, scratch: Path) -> tuple[dict[str, float], float]:
    """Let so many messages wait; return what a new housekeeper has in memory, and after how many s it delivered one."""
    root = scratch / f"{messages} waiting"
    pid = os.fork()
    if pid == 0:
        _live(partial(_let_wait, root, messages))
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("the messages that shall wait could not be sent")
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _live(partial(keep_house, root, scratch / f"{messages} evidence"))
    try:
        with open_store(root, CONFIG, housekeeping=False) as store:
            while not any(store.topics.max_offset(queue) for queue in store.topics.queues(TOPIC)):
                if time.monotonic() > began + DRAIN_S:
                    raise RuntimeError("a new housekeeper delivered nothing")
                time.sleep(0.005)
            return memory_of(pid), time.monotonic() - began
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        shutil.rmtree(root)


def _let_wait(root: Path, messages: int) -> None:
    with open_store(root, CONFIG, housekeeping=False) as store, Producer(store) as producer:
        for _ in range(0, messages, 500):
            batch = [Message(TOPIC, b"0 0 0")] * min(500, messages)
            producer.send_batch(batch, delay=datetime.timedelta(days=3))
        producer.send(Message(TOPIC, b"0 0 0"), delay=datetime.timedelta(milliseconds=1))


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


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Send a thousand messages for each round."""
    messages = rounds * MESSAGES_A_ROUND
    empty, _ = memory_with(0, scratch)  # first: what this process has in memory a forked one seems to have, too
    full, soon_s = memory_with(messages, scratch)
    delays = Delays(scratch, seed, rounds)
    found = delays.run()
    return Result(
        CLAIM,
        {
            "messages": messages,
            "longest delay, s": int(delays.longest_s),
            **delays.kills,
            "handled again, in flight at a kill": found.repeated,
            "most that waited at once": found.most_pending,
            **lateness("on quiet", found.quiet),
            **lateness("while messages are sent", found.while_sending),
            **lateness("within 3 s of a kill of the housekeeper", found.beside_kills),
            "housekeeper under way, most memory of its own, MiB": round(delays.most_resident_mib, 1),
            f"housekeeper with {messages:,} waiting, memory of its own, MiB": round(full["anonymous"], 1),
            "the same with none waiting, MiB": round(empty["anonymous"], 1),
            f"a new housekeeper with {messages:,} waiting delivers after, s": round(soon_s, 2),
        },
        found.problems,
    )


RIG = Rig("delays", 1_000, run)
