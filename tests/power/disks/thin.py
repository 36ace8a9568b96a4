"""A thin disk whose pool runs out under a store, and gets room again: the same kernel, the same mounting, lost pages.

The disk is a loop device over a file of holes on a small tmpfs. A write to a block that the file does not have fails
with ENOSPC while the tmpfs is full. What the kernel could not write it forgets in time. It must be xfs: ext4 has blocks
for the first page of a file of the log, and a loop device takes a write of which one page fits for a whole one.

``python -m tests.power.disks.thin --scratch DIRECTORY`` prints the copies of each delayed message as JSON, and must
run as :func:`tests.power.disks.machine.command` says.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from rmqclient.sending.producer import Producer
from rmqclient.store import Message, open_store
from rmqclient.store.errors import StorePoisoned
from rmqclient.store.runtime import shared_state
from tests.power.disks import machine
from tests.power.disks.failing import QUEUE, ROOT, TOPIC
from tests.power.disks.machine import Machine
from tests.power.disks.plugging import RARE, bodies_of, forked, wait_for
from tests.support.host.small_disks import Filler
from tests.support.oracle import reference

FILE_SYSTEM = "xfs"
_POOL_BYTES = 400 << 20
_BODY_BYTES = 8_100
_A_FILE = 7
"""So many fill a file of the log, all of whose blocks the disk has after the first flush."""
FIRST, LEVEL, EXACT, LATER = (text.ljust(_BODY_BYTES, b".") for text in (b"first", b"by level", b"by time", b"later"))


def _live(root: Path, pool: Path) -> None:
    """Store two delayed messages, let the pool run out, see them delivered in memory only, and die."""
    store = open_store(root, RARE)
    producer = Producer(store, config=RARE)
    producer.create_topic(TOPIC, 1)
    for _ in range(_A_FILE - 2):
        producer.send(Message(TOPIC, FIRST))
    producer.send(Message(TOPIC, LEVEL), delay_level=1)
    producer.send(Message(TOPIC, EXACT), delay=1)
    store.state.mapping.populate(0, store.state.mapping.size)  # so that the disk has blocks for every page of it
    _sync_shared(root)
    Filler(pool).fill()
    wait_for(lambda: store.topics.max_offset(QUEUE) == _A_FILE)
    _sync_shared(root)
    try:
        producer.send(Message(TOPIC, LATER))
    except StorePoisoned:
        os.kill(os.getpid(), signal.SIGKILL)


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
        wait_for(lambda: bodies_of(root).count(LATER) == 2)


def run(scratch: Path) -> dict[str, Any]:
    """Let a pool run out once, in namespaces of its own; return how often each delayed message was delivered."""
    ran = subprocess.run(
        machine.command([sys.executable, "-m", "tests.power.disks.thin", f"--scratch={scratch}"]),
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ran.returncode:
        return {"ended": f"with status {ran.returncode}: {ran.stderr}"}
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def main() -> None:
    """Let a pool run out from the command line."""
    parser = argparse.ArgumentParser(description="Let the pool of a thin disk run out, and give it room again.")
    parser.add_argument("--scratch", type=Path, required=True, help="an empty directory")
    options = parser.parse_args()
    pool = options.scratch / "pool"
    pool.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_POOL_BYTES}", "none", pool], check=True)
    computer = Machine(FILE_SYSTEM, pool)
    computer.make_thin()
    root = computer.directory / "store"
    killed = forked(lambda: _live(root, pool))
    Filler(pool).free()
    again = forked(lambda: _live_again(root))
    computer.plug_in()  # from now on what the disk has is what can be read
    bodies = bodies_of(root)
    figures = {
        "ended": [killed, again],
        "level": bodies.count(LEVEL),
        "exact": bodies.count(EXACT),
        "later": bodies.count(LATER),
        "problems": reference.check_store(root),
    }
    computer.close()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
