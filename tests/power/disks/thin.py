"""A thin disk whose pool runs out under a store, and gets room again: the same kernel, the same mounting, lost pages.

The disk is a loop device over a file of holes on a small tmpfs. A write to a block that the file does not have fails
with ENOSPC while the tmpfs is full. What the kernel could not write it forgets in time. It must be xfs: ext4 has blocks
for the first page of a file of the log, and a loop device takes a write of which one page fits for a whole one.

``python -m tests.power.disks.thin --scratch DIRECTORY`` prints what became of the messages as JSON, and must run as
:func:`tests.power.disks.machine.command` says.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rmqclient.sending.producer import Producer
from rmqclient.store import Message, open_store
from rmqclient.store.errors import StorePoisoned
from rmqclient.store.runtime import shared_state
from tests.power.disks import machine
from tests.power.disks.failing import QUEUE, ROOT, TOPIC
from tests.power.disks.machine import Machine
from tests.power.disks.plugging import RARE, bodies_of, forked, has_later, wait_for
from tests.support.host.small_disks import Filler
from tests.support.oracle import reference

FILE_SYSTEM = "xfs"
POOL_BYTES = 400 << 20
_BODY_BYTES = 8_100
A_FILE = 7
"""So many fill a file of the log, all of whose blocks the disk has after the first flush."""
NOW, LEVEL, EXACT = "now", "by level", "by time"
WAYS = (*[NOW] * (A_FILE - 2), LEVEL, EXACT)
"""How the messages of the simplest case are sent."""
LATER = b"later".ljust(_BODY_BYTES, b".")
TOO_SLOW = 3
"""Exit status of a life whose delayed messages were delivered before the pool ran out."""


def random_ways(chance: random.Random) -> list[str]:
    """Return how to send some files of messages: what is delayed comes last, and is due when the pool is empty."""
    count = A_FILE * chance.randint(1, 4)
    delayed = chance.randint(1, A_FILE)
    return [NOW] * (count - delayed) + chance.choices((LEVEL, EXACT), k=delayed)


def _live(root: Path, pool: Path, ways: Sequence[str]) -> None:
    """Store messages, let the pool run out, see the delayed ones delivered in memory only, and die."""
    store = open_store(root, RARE)
    producer = Producer(store, config=RARE)
    producer.create_topic(TOPIC, 1)
    for number, way in enumerate(ways):
        _send(producer, way, b"message %d;" % number)
    store.state.mapping.populate(0, store.state.mapping.size)  # so that the disk has blocks for every page of it
    _sync_shared(root)
    Filler(pool).fill()
    if store.topics.max_offset(QUEUE) > ways.count(NOW):
        os._exit(TOO_SLOW)
    wait_for(lambda: store.topics.max_offset(QUEUE) == len(ways))
    _sync_shared(root)
    try:
        producer.send(Message(TOPIC, LATER))
    except StorePoisoned:
        os.kill(os.getpid(), signal.SIGKILL)


def _send(producer: Producer, way: str, body: bytes) -> None:
    message = Message(TOPIC, body.ljust(_BODY_BYTES, b"."))
    if way == LEVEL:
        producer.send(message, delay_level=1)
    elif way == EXACT:
        producer.send(message, delay=1)
    else:
        producer.send(message)


def _sync_shared(root: Path) -> None:
    """Let the runtime file reach the disk, as the kernel may any time."""
    for name in ("lock", shared_state.FILE_NAME):
        descriptor = os.open(root / name, os.O_RDWR)
        os.fsync(descriptor)
        os.close(descriptor)


def _live_again(root: Path) -> None:
    """Wait until two later messages are delivered, and with them whatever was due before them; make that durable."""
    with open_store(root, RARE) as store:
        producer = Producer(store, config=RARE)
        producer.send(Message(TOPIC, LATER), delay_level=1)
        producer.send(Message(TOPIC, LATER), delay=1)
        wait_for(lambda: has_later(root, LATER))


def run(scratch: Path) -> dict[str, Any]:
    """Let a pool run out once, in namespaces of its own; return what became of the messages."""
    ran = subprocess.run(
        machine.command([sys.executable, "-m", "tests.power.disks.thin", f"--scratch={scratch}"]),
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ran.returncode:
        return {"ended": f"with status {ran.returncode}: {ran.stderr}"}
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def run_out(scratch: Path, ways: Sequence[str]) -> dict[str, Any]:
    """Let a pool run out under a new store, to which so many messages are sent in these ways."""
    pool = scratch / "pool"
    pool.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={POOL_BYTES}", "none", pool], check=True)
    computer = Machine(FILE_SYSTEM, pool)
    computer.make_thin()
    root = computer.directory / "store"
    killed = forked(lambda: _live(root, pool, ways))
    Filler(pool).free()
    again = forked(lambda: _live_again(root))
    computer.plug_in()  # from now on what the disk has is what can be read
    problems = reference.check_store(root)
    bodies = bodies_of(root) if not problems else []
    copies = Counter(body.partition(b";")[0].decode() for body in bodies if body != LATER)
    figures = {
        "ended": [killed, again],
        "lost": [f"{way}, message {number}" for number, way in enumerate(ways) if not copies[f"message {number}"]],
        "twice": [name for name, times in copies.items() if times > 1],
        "later": bodies.count(LATER),
        "problems": problems,
    }
    computer.close()
    subprocess.run(["umount", "--lazy", pool], check=True)
    return figures


def main() -> None:
    """Let a pool run out from the command line."""
    parser = argparse.ArgumentParser(description="Let the pool of a thin disk run out, and give it room again.")
    parser.add_argument("--scratch", type=Path, required=True, help="an empty directory")
    print(json.dumps(run_out(parser.parse_args().scratch, WAYS)))


if __name__ == "__main__":
    main()
