"""Poison messages of six kinds among good ones, with real workers; then the handler is mended and all are replayed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqclient import Message, Producer
from rmqclient.failures.dead_letters import DeadLetter, Selection, select
from rmqclient.store import open_store
from tests.groups.processes.poison import CONFIG, GROUP, MAX_RETRIES, POISONS, TOPIC, mended
from tests.torture.result import Result, Rig

CLAIM = (
    "Poison messages that raise, exit, abort, segfault, hang or eat memory end in the dead-letter topic after their "
    "attempts, every good one is handled once, and a replay from the shell is handled once the handler is mended."
)
_PROCESSES = 2
_QUEUES = 4
_LIMIT_S = 60.0
"""To settle; the good ones get more."""


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Send so many good messages, and a poison of each kind for a thousand of them, at least one."""
    result = Result(CLAIM, {"good messages": rounds})
    root, journal = scratch / "store", scratch / "journal"
    good = [f"good {number}" for number in range(rounds)]
    poison = [f"{kind} {number}" for kind in POISONS for number in range(max(1, rounds // 1_000))]
    bodies = good + poison
    random.Random(seed).shuffle(bodies)
    begun = time.monotonic()
    with Producer(root, config=CONFIG) as producer:
        producer.create_topic(TOPIC, _QUEUES)
        for body in bodies:
            producer.send(Message(TOPIC, body.encode(), keys=(body.partition(" ")[0],)))
    with supervised(root, journal):
        limit_s = _LIMIT_S + rounds / 100 + 6 * len(poison)
        _wait(lambda: len(waiting(root)) >= len(poison) and ends(journal).total() >= len(good), limit_s)
    result.figures |= {"poison messages": len(poison), "until all had ended in s": round(time.monotonic() - begun, 1)}
    result.problems += _wrong_first(journal, good, poison, waiting(root))
    mended(journal).touch()
    replayed = _replay(root)
    with supervised(root, journal):
        _wait(lambda: ends(journal).total() >= len(bodies), _LIMIT_S)
    result.figures["replayed"] = replayed
    if replayed != len(poison) or _replay(root) != 0:
        result.problems.append(f"{replayed} of {len(poison)} dead letters were replayed the first time")
    handled = ends(journal)
    result.problems += [
        f"{body}: handled {handled[body]} times after the replay" for body in bodies if handled[body] != 1
    ]
    return result


def _wrong_first(journal: Path, good: list[str], poison: list[str], letters: list[DeadLetter]) -> Iterator[str]:
    """Say what went wrong before the handler was mended."""
    handled, attempts = ends(journal), attempts_of(journal)
    for body in good:
        if handled[body] != 1 or len(attempts.get(body, [])) != 1:
            yield f"{body}: handled {handled[body]} times, begun as attempts {attempts.get(body)}"
    expected = list(range(1, MAX_RETRIES + 2))
    for body in poison:
        if attempts.get(body) != expected:
            yield f"{body}: begun as attempts {attempts.get(body)} and not as {expected}"
    found = Counter(letter.message.body.decode() for letter in letters)
    for body in poison:
        if found[body] != 1:
            yield f"{body}: {found[body]} dead letters"
    for letter in letters:
        told = [failure["attempt"] for failure in letter.failures]
        if told != expected or letter.topic != TOPIC or letter.attempts != MAX_RETRIES + 1:
            yield f"{letter.message.body!r}: its history tells of the attempts {told} in {letter.topic}"


@contextmanager
def supervised(root: Path, journal: Path) -> Iterator[None]:
    """Run workers, and stop them in order at the end."""
    arguments = [str(root), str(journal), str(_PROCESSES)]
    with journal.with_suffix(".log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.groups.processes.poison", *arguments], stdout=log, stderr=log
        )
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_LIMIT_S)


def waiting(root: Path) -> list[DeadLetter]:
    """Return the dead letters that were not replayed yet."""
    with open_store(root, CONFIG, housekeeping=False) as store:
        return list(select(store, GROUP, Selection()))


def lines(journal: Path) -> list[list[str]]:
    """Return what the handler wrote."""
    return [line.split() for line in journal.read_text().splitlines()] if journal.exists() else []


def ends(journal: Path) -> Counter[str]:
    """Return how often the handler came to the end of each body."""
    return Counter(f"{words[1]} {words[2]}" for words in lines(journal) if words[0] == "end")


def attempts_of(journal: Path) -> dict[str, list[int]]:
    """Return the delivery attempts of each body, in the order in which they began."""
    found: dict[str, list[int]] = {}
    for word, *rest in lines(journal):
        if word == "begin":
            found.setdefault(f"{rest[0]} {rest[1]}", []).append(int(rest[2]))
    return found


def _replay(root: Path) -> int:
    command = [sys.executable, "-m", "rmqclient.workers", "dlq", "replay", GROUP, "--store", str(root), "-o", "json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return len(json.loads(done.stdout))


def _wait(condition: Callable[[], bool], limit_s: float) -> None:
    """Return when the condition holds, or when the time is up: what is missing is told afterwards."""
    until = time.monotonic() + limit_s
    while not condition() and time.monotonic() < until:
        time.sleep(0.2)


RIG = Rig("poison", 10_000, run)
