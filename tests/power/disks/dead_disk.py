"""A disk that is gone under two processes that go on: the file system is shut down, and nobody is killed.

Every ``fdatasync`` then fails with EIO. Both processes must be told, and no send may return after that. On xfs a store
to a page that was not there yet is SIGBUS, which ends the process: also an answer.

``python -m tests.power.disks.dead_disk ext4 --rounds 10 --seed 7 --scratch DIRECTORY`` prints the figures as JSON, and
must run as :func:`tests.power.disks.machine.command` says.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rmqclient.sending.producer import Producer
from rmqclient.store import Durability, Message, open_store
from rmqclient.store.errors import DiskFailed, StorePoisoned
from tests.power.disks import machine
from tests.power.disks.failing import CONFIG, ROOT, SYNC, TOPIC, be_stubborn
from tests.power.disks.machine import Cut, Machine
from tests.support.oracle import reference


@dataclass(slots=True)
class Figures:
    """What became of the processes."""

    disks: int = 0
    acknowledged_before: int = 0
    acknowledged_after: int = 0
    refused: int = 0
    ended_by_sigbus: int = 0
    problems: list[str] = field(default_factory=list)


ENOUGH = 2_000
"""So many sends that were refused one after the other show that none returns, whether or not a flush was tried."""


def _live(root: Path, evidence: Path, durability: Durability) -> None:
    """Send until the store is poisoned, and some more."""
    descriptor = os.open(evidence, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    store = open_store(root, CONFIG)
    producer = Producer(store, config=replace(CONFIG, durability=durability))
    other = Producer(store, config=replace(CONFIG, durability=Durability.SYNC))
    other.send(Message(TOPIC, b"first"))
    refusals = 0
    try:
        for number in itertools.count():
            poisoned = store.state.poisoned
            try:
                producer.send(Message(TOPIC, b"%d" % number))
            except DiskFailed:  # no next file on a dead disk: nothing was written, and nobody has flushed yet
                if (refusals := refusals + 1) == ENOUGH:
                    break
            else:
                os.write(descriptor, b"o %d\n" % poisoned)
            time.sleep(0.0005)  # a pace of sending
    except StorePoisoned as error:
        os.write(descriptor, f"p {error}\n".encode())
    be_stubborn([producer, other], lambda line: _say(descriptor, line))
    with suppress(StorePoisoned, DiskFailed):
        store.close()


def _say(descriptor: int, line: str) -> None:
    os.write(descriptor, b"p\n" if line.startswith("p ") else b"o 1\n")


def _round(computer: Machine, root: Path, evidence: list[Path], chance: random.Random, figures: Figures) -> None:
    children = [_forked(root, path, durability) for path, durability in zip(evidence, Durability, strict=True)]
    deadline = time.monotonic() + 20
    while not all(path.exists() and path.stat().st_size for path in evidence) and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.02))  # the moment at which the disk goes
    computer.cut(Cut.NOTHING)
    for pid in children:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        figures.ended_by_sigbus += status == -signal.SIGBUS
        if status not in (0, -signal.SIGBUS):
            figures.problems.append(f"disk {figures.disks}: a process ended with status {status}")
    computer.start()
    for path in evidence:
        for line in path.read_text(encoding="utf-8").splitlines():
            figures.refused += line.startswith("p")
            figures.acknowledged_before += line == "o 0"
            figures.acknowledged_after += line.startswith("o ") and line != "o 0"
        path.unlink()
    _recover(root, figures)


def _forked(root: Path, evidence: Path, durability: Durability) -> int:
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        try:
            _live(root, evidence, durability)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the child must not return into its parent's life
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return pid


def _recover(root: Path, figures: Figures) -> None:
    """The disk is well again: the next opening recovers, and takes messages."""
    pid = os.fork()
    if pid == 0:
        with open_store(root, CONFIG, housekeeping=False) as store:
            Producer(store, config=SYNC).send(Message(TOPIC, b"after"))
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        figures.problems.append(f"disk {figures.disks}: the store cannot be opened again")
    figures.problems += reference.check_store(root)


def run(file_system: str, rounds: int, seed: int, scratch: Path) -> dict[str, Any]:
    """Let so many disks go, in namespaces of its own; return figures and problems."""
    arguments = [file_system, f"--rounds={rounds}", f"--seed={seed}", f"--scratch={scratch}"]
    ran = subprocess.run(
        machine.command([sys.executable, "-m", "tests.power.disks.dead_disk", *arguments]),
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ran.returncode:
        return {"problems": [f"the run on {file_system} ended with status {ran.returncode}: {ran.stderr}"]}
    found: dict[str, Any] = json.loads(ran.stdout)
    if found["problems"]:
        found["problems"].append(ran.stderr[-2_000:])
    return found


def main() -> None:
    """Let disks go from the command line."""
    parser = argparse.ArgumentParser(description="Shut the file system down under processes that go on.")
    parser.add_argument("file_system", choices=machine.MAKING)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--scratch", type=Path, required=True, help="an empty directory")
    options = parser.parse_args()
    computer = Machine(options.file_system, options.scratch)
    figures, chance = Figures(), random.Random(options.seed)
    evidence = [options.scratch / f"evidence-{durability.name}" for durability in Durability]
    for number in range(options.rounds):
        figures.disks += 1
        _round(computer, computer.directory / f"store-{number % 2}", evidence, chance, figures)
    computer.close()
    print(json.dumps(asdict(figures)))


if __name__ == "__main__":
    main()
