"""Two processes that use a store one after the other, each of which a power cut ends.

``python -m tests.power.two_lives ext4 FIRST SECOND DIRECTORY`` prints, as JSON, the bodies that the store holds at the
end and what is wrong with it. It must run as :func:`tests.power.disks.machine.command` says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmqclient.sending.producer import Producer
from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.recovery.recovery import ABORT
from tests.power.cuts import ROOT
from tests.power.disks import machine
from tests.power.disks.machine import PAGE, Cut, Machine, write_pages
from tests.power.life import CONFIG, RECORD_OVERHEAD
from tests.support.oracle import reference

FLUSHED, LOST, SENT_LATER = "orders", "events", "orders"
MESSAGES = 4
BODY = PAGE - RECORD_OVERHEAD
"""Of records that fill a page, so that one can begin where any other ends."""


def send_and_lose(store: MessageStore) -> None:
    """Of four records that nobody has flushed, and of their entries, all reach the disk but the first record."""
    producer = _producer(store)
    _send(producer, FLUSHED, "flushed")
    store.flusher.flush_thorough()
    _send(producer, LOST, "lost")
    end = store.state.published_to
    write_pages(store.log_files.path(0), range(end - (MESSAGES - 1) * PAGE, end, PAGE))
    write_pages(store.consume_queues[store.topics.queues(LOST)[0]].files.path(0), range(0, PAGE, PAGE))


def send_one_page(store: MessageStore) -> None:
    """A record takes the place of the lost one, and reaches the disk alone."""
    producer = _producer(store)
    start = store.state.published_to
    producer.send(Message(SENT_LATER, b"later".ljust(BODY, b".")))
    write_pages(store.log_files.path(0), range(start, start + PAGE, PAGE))


def send_and_flush(store: MessageStore) -> None:
    """Others take the places of all, and everything that has changed is flushed."""
    _send(_producer(store), SENT_LATER, "later")
    store.flusher.flush_thorough()


def leave(store: MessageStore) -> None:
    """Leave the store in good order."""
    store.close()


def do_nothing(_: MessageStore) -> None:
    """Have the store open, and that is all."""


Life = Callable[[MessageStore], None]
LIVES: dict[str, Life] = {
    function.__name__: function for function in (send_and_lose, send_one_page, send_and_flush, leave, do_nothing)
}


def run(file_system: str, first: Life, second: Life, scratch: Path) -> dict[str, Any]:
    """Cut the power after each of two lives, in namespaces of its own; return what is there then."""
    arguments = ["-m", "tests.power.two_lives", file_system, first.__name__, second.__name__, str(scratch)]
    ran = subprocess.run(
        machine.command([sys.executable, *arguments]), cwd=ROOT, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def _producer(store: MessageStore) -> Producer:
    producer = Producer(store, config=CONFIG)
    for topic in (FLUSHED, LOST):
        producer.create_topic(topic, 1)
    return producer


def _send(producer: Producer, topic: str, name: str) -> None:
    for number in range(MESSAGES):
        producer.send(Message(topic, f"{name} {number}".encode().ljust(BODY, b".")))


def _die_after(root: Path, life: Life) -> None:
    """Open the store in a child that does something with it and ends without closing it."""
    pid = os.fork()
    if pid == 0:
        life(open_store(root, CONFIG, housekeeping=False))
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError(f"{life.__name__} failed")


def main() -> None:
    """Do it, in the namespaces that the process has."""
    file_system, first, second, scratch = sys.argv[1:]
    computer = Machine(file_system, Path(scratch))
    root = computer.directory / "store"
    for name in (first, second):
        _die_after(root, LIVES[name])
        # A store that nothing was done with must be known for one in use without any help.
        computer.cut(Cut.NOTHING if name == do_nothing.__name__ else Cut.JOURNAL)
        computer.start()
    in_use = (root / ABORT).exists()
    _die_after(root, leave)
    bodies = [record.body.rstrip(b".").decode() for _, record in reference.read_commit_log(root)]
    problems = reference.check_store(root)
    computer.close()
    print(json.dumps({"bodies": bodies, "problems": problems, "in use": in_use}))


if __name__ == "__main__":
    main()
