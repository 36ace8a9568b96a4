"""Random ``kill -9`` of workers in the middle of durable steps, sleeps and waits.

A round is a new store with some messages, each with three steps, and two workers that are forked again whenever one
dies. A worker dies at a chosen moment before, inside or behind a step, at a crash point of the store, or when the rig
kills it. On a machine so busy that workers die before they begin, the round ends with workers that live. Every
execution of a step gives another value, and the evidence is a file to which each process appends: what ran, what a step
returned, which message is done.
"""

from __future__ import annotations

import math
import os
import random
import shutil
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import MessageQueue, MessageStore, crash_points, open_store
from rmqclient.store.crash_points import CrashPoint
from tests.support.oracle import reference
from tests.support.stores import SMALL
from tests.torture.result import Result, Rig

CLAIM = (
    "Whichever process is killed, and whenever, no step whose result was stored runs again, no result is lost "
    "or changed, no signal is lost, and every message is finished."
)
TOPIC, GROUP = "orders", "billing"
STEPS = ("charge", "pack", "ship")

MESSAGES = 24
_WORKERS = 2
_LONGEST_ROUND_S = 120.0
"""After so long nobody is killed any more, and after as long again every message must be finished."""
_LOOK_S = 0.001
_FOR_EVER = RetryPolicy(max_retries=1_000_000, delays=(0.003,))
_POINTS = [
    *(point for point in CrashPoint if point < CrashPoint.PROGRESS_ADVANCED),
    *(CrashPoint.ACK_LOCKED, CrashPoint.ACK_MARKED, CrashPoint.ACK_ADVANCING, CrashPoint.ACK_CLEARED),
    *(CrashPoint.INDEX_SLOT_WRITTEN, CrashPoint.INDEX_WRITTEN, CrashPoint.REPAIR_STARTED, CrashPoint.REPAIR_ZEROED),
]


@dataclass(slots=True)
class Moment:
    """When a worker kills itself: at the n-th time that it comes to a place in any of its steps."""

    place: str
    left: int

    def come(self, place: str) -> None:
        """Die if this is the moment."""
        if place == self.place:
            self.left -= 1
            if self.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)


class Evidence:
    """A file to which each process appends lines; the order of the lines is that of the events."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)

    def write(self, *words: str) -> None:
        """Append a line, with one call of the system. A kill can cut it, so the next one begins with a new line."""
        os.write(self._descriptor, f"\n{' '.join(words)} .\n".encode())

    def lines(self) -> list[list[str]]:
        """Return all lines that are whole, as words."""
        return [line.split()[:-1] for line in self.path.read_text(encoding="utf-8").splitlines() if line.endswith(" .")]

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


def handlers(evidence: Evidence, moment: Moment, chosen: random.Random) -> App:
    """Return an application of three steps for each message, which sleeps before the last one, or waits, or neither."""
    app = App("nowhere")

    def effect(number: str, name: str) -> str:
        value = f"{number}-{name}-{os.getpid()}-{time.monotonic_ns()}"
        evidence.write("ran", number, name)
        moment.come("inside")
        return value

    def step(message: ReceivedMessage, number: str, name: str) -> None:
        moment.come("before")
        value = message.steps(name, effect, number, name)
        evidence.write("returned", number, name, value)
        moment.come("behind")
        if chosen.random() < 0.05:
            raise ConnectionError

    @app.handler(TOPIC, group=GROUP, threads=2, retry=_FOR_EVER)
    def handle(message: ReceivedMessage) -> None:
        number = message.body.decode()
        for name in STEPS[:2]:
            step(message, number, name)
        match int(number) % 3:
            case 1:
                message.steps.sleep(seconds=0.004)
            case 2:
                evidence.write("signalled", number, message.steps[str].wait_for("approved", timeout=_LONGEST_ROUND_S))
        step(message, number, STEPS[2])
        evidence.write("done", number)

    return app


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Do so many rounds, each with a new store."""
    chosen = random.Random(seed)
    counted: Counter[str] = Counter()
    result = Result(CLAIM)
    for number in range(rounds):
        directory = scratch / f"round {number}"
        directory.mkdir()
        problems = _Round(directory, random.Random(chosen.random()), counted).run()
        result.problems += [f"round {number} of seed {seed}: {problem}" for problem in problems]
        if not problems:
            shutil.rmtree(directory)
    result.figures = {"rounds": rounds, **counted}
    return result


class _Round:
    """One store, its messages and its workers."""

    def __init__(self, directory: Path, chosen: random.Random, counted: Counter[str]) -> None:
        self._root = directory / "store"
        self._evidence = Evidence(directory / "evidence")
        self._chosen = chosen
        self._counted = counted
        self._workers: dict[int, float] = {}
        """By pid, when the rig kills it."""
        self._peace_at = time.monotonic() + _LONGEST_ROUND_S

    def run(self) -> list[str]:
        """Return what is wrong."""
        with open_store(self._root, SMALL) as store, Producer(store) as producer:
            producer.create_topic(TOPIC, 2)
            sent = [producer.send(Message(TOPIC, b"%d" % number)).message_id for number in range(MESSAGES)]
            waiting = [(number, sent[number]) for number in range(MESSAGES) if number % 3 == 2]
            self._chosen.shuffle(waiting)
            deadline = time.monotonic() + 2 * _LONGEST_ROUND_S
            while not self._is_over() and time.monotonic() < deadline:
                self._tend()
                if waiting and self._chosen.random() < 0.1:
                    number, message_id = waiting.pop()
                    producer.signal(message_id, "approved", f"yes-{number}", group=GROUP)
                time.sleep(_LOOK_S)
            self._end_workers()
            lines = self._evidence.lines()
            self._count(lines)
            problems = of_lines(lines) + of_records(lines, store)
        self._evidence.close()
        return problems + [str(problem) for problem in reference.check_store(self._root)]

    def _count(self, lines: list[list[str]]) -> None:
        ran = Counter((number, rest[0]) for what, number, *rest in lines if what == "ran")
        returned = [what for what, *_ in lines if what == "returned"]
        self._counted["steps"] += len(ran)
        self._counted["steps that ran again, without a result"] += sum(ran.values()) - len(ran)
        self._counted["results that were returned again"] += len(returned) - len(ran)

    def _is_over(self) -> bool:
        done = {words[1] for words in self._evidence.lines() if words[0] == "done"}
        return len(done) == MESSAGES

    def _tend(self) -> None:
        """Kill the workers whose time has come, and fork others for those that died."""
        for pid, end in list(self._workers.items()):
            is_due = time.monotonic() > end
            if is_due:
                os.kill(pid, signal.SIGKILL)
            if _has_ended(pid, wait=is_due):
                del self._workers[pid]
                self._counted["kills"] += 1
        while len(self._workers) < _WORKERS:
            is_peace = time.monotonic() > self._peace_at
            pid = self._fork(lives=is_peace)
            self._workers[pid] = math.inf if is_peace else time.monotonic() + self._chosen.uniform(0.02, 0.3)

    def _end_workers(self) -> None:
        for pid in self._workers:
            os.kill(pid, signal.SIGKILL)
            _has_ended(pid, wait=True)

    def _fork(self, *, lives: bool) -> int:
        chosen = random.Random(self._chosen.random())
        places = {0: "before", 1: "inside", 2: "behind"}
        kind = len(places) + 1 if lives else chosen.randrange(5)
        moment = Moment(places.get(kind, "never"), chosen.randrange(8))
        point = chosen.choice(_POINTS) if kind == 3 else None
        return _forked(lambda: self._work(moment, point, chosen))

    def _work(self, moment: Moment, point: CrashPoint | None, chosen: random.Random) -> None:
        app = handlers(self._evidence, moment, chosen)
        consumer = PushConsumer(self._root, app.handlers, config=ConsumerConfig(local_retry_ms=5))
        consumer.start()
        if point is not None:
            crash_points.arm(point, passes=chosen.randrange(12))
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(0.1)


def of_lines(lines: list[list[str]]) -> list[str]:
    """Say what is wrong with what ran, by the order of the lines."""
    problems: list[str] = []
    values: dict[tuple[str, str], str] = {}
    done: set[str] = set()
    for what, number, *rest in lines:
        if what == "ran" and (number, rest[0]) in values:
            problems.append(f"step {rest[0]} of message {number} ran again when it had returned")
        elif what == "returned" and values.setdefault((number, rest[0]), rest[1]) != rest[1]:
            problems.append(f"step {rest[0]} of message {number} returned {rest[1]}, {values[number, rest[0]]} before")
        elif what == "signalled" and rest != [f"yes-{number}"]:
            problems.append(f"message {number} was told {rest}")
        elif what == "done":
            done.add(number)
    missing = {str(number) for number in range(MESSAGES)} - done
    if missing:
        problems.append(f"messages were never finished: {sorted(missing)}")
    return problems


def of_records(lines: list[list[str]], store: MessageStore) -> list[str]:
    """Say what is wrong with the results that are stored."""
    values = {(number, rest[0]) for what, number, *rest in lines if what == "returned"}
    queue = MessageQueue(f"%STEPS%{GROUP}", 0)
    stored = Counter(
        (message.keys[0], message.properties["RMQ_STEP"])
        for offset in range(store.topics.max_offset(queue))
        if (message := store.messages.at(queue, offset)).properties["RMQ_STEP_KIND"] == "result"
    )
    problems = [f"{count} results of {step} are stored" for step, count in stored.items() if count > 1]
    if len(stored) < len(values):
        problems.append(f"{len(values)} steps returned, and {len(stored)} results are stored")
    return problems


def _forked(do: Callable[[], object]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads here; the child opens all anew
        pid = os.fork()
    if pid == 0:
        try:
            do()
        except BaseException:  # noqa: BLE001 - the child must not return into the rig
            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def _has_ended(pid: int, *, wait: bool) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, 0 if wait else os.WNOHANG)[0] != 0
    return True


RIG = Rig("steps", 500, run)
