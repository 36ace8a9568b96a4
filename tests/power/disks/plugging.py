"""A disk that is pulled out and plugged in again under a kernel that goes on: the page cache is lost without a boot.

``python -m tests.power.disks.plugging ext4 --scratch DIRECTORY`` prints the copies of each delayed message as JSON, and
must run as :func:`tests.power.disks.machine.command` says.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmqclient.sending.producer import Producer
from rmqclient.store import Message, open_store
from rmqclient.store.config import FlushConfig
from rmqclient.store.runtime import shared_state
from tests.power.disks import machine
from tests.power.disks.failing import QUEUE, ROOT, SYNC, TOPIC
from tests.power.disks.machine import Cut, Machine
from tests.support.oracle import reference

RARE = replace(SYNC, flush=FlushConfig(interval_ms=60_000, thorough_interval_ms=60_000))
"""Nothing is flushed but what a SYNC send flushes."""
LEVEL, EXACT, LATER = b"by level", b"by time", b"later"


def _live(root: Path) -> None:
    """Store two delayed messages, see them delivered, let the runtime file reach the disk, and die."""
    store = open_store(root, RARE)
    producer = Producer(store, config=RARE)
    producer.create_topic(TOPIC, 1)
    for body in (LEVEL, EXACT):
        _send_delayed(producer, body)
    wait_for(lambda: store.topics.max_offset(QUEUE) == 2)
    for name in ("lock", shared_state.FILE_NAME):  # as the kernel may any time
        descriptor = os.open(root / name, os.O_RDWR)
        os.fsync(descriptor)
    os.kill(os.getpid(), signal.SIGKILL)


def _live_again(root: Path) -> None:
    """Wait until two later messages are delivered, and with them whatever was due before them."""
    with open_store(root, RARE) as store:
        producer = Producer(store, config=RARE)
        _send_delayed(producer, LEVEL, LATER)
        _send_delayed(producer, EXACT, LATER)
        wait_for(lambda: has_later(root, LATER))


def _send_delayed(producer: Producer, way: bytes, body: bytes | None = None) -> None:
    message = Message(TOPIC, body or way)
    if way == LEVEL:
        producer.send(message, delay_level=1)
    else:
        producer.send(message, delay=1)


def bodies_of(root: Path) -> list[bytes]:
    """Return what the log has for the topic itself, in its order."""
    return [record.body for _, record in reference.read_commit_log(root) if record.topic == TOPIC]


def has_later(root: Path, body: bytes) -> bool:
    """Tell whether the two messages with a body are delivered, in a log to which others append."""
    try:
        return bodies_of(root).count(body) == 2
    except reference.BadStore:  # a record was appended while the files were read, one after the other
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, and for half a minute at most."""
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)


def forked(life: Callable[[], None]) -> int:
    """Run one life in a process of its own; return its exit status."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        life()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(file_system: str, scratch: Path) -> dict[str, Any]:
    """Pull the disk out once, in namespaces of its own; return how often each delayed message was delivered."""
    ran = subprocess.run(
        machine.command([sys.executable, "-m", "tests.power.disks.plugging", file_system, f"--scratch={scratch}"]),
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ran.returncode:
        return {"ended": f"with status {ran.returncode}: {ran.stderr}"}
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def main() -> None:
    """Pull a disk out from the command line."""
    parser = argparse.ArgumentParser(description="Pull a disk out, and plug it in again without a boot.")
    parser.add_argument("file_system", choices=machine.MAKING)
    parser.add_argument("--scratch", type=Path, required=True, help="an empty directory")
    options = parser.parse_args()
    computer = Machine(options.file_system, options.scratch)
    root = computer.directory / "store"
    killed = forked(lambda: _live(root))
    computer.cut(Cut.JOURNAL)
    computer.plug_in()
    before = (root / shared_state.FILE_NAME).exists()
    again = forked(lambda: _live_again(root))
    bodies = bodies_of(root)
    figures = {
        "ended": [killed, again],
        "runtime_file": before,
        "level": bodies.count(LEVEL),
        "exact": bodies.count(EXACT),
        "later": bodies.count(LATER),
        "problems": reference.check_store(root),
    }
    computer.close()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
