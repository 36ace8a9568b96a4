"""Works: what is profiled. Each is the work behind a target, in the processes of its benchmark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.child import Child, together
from benchmarks.consuming import request
from benchmarks.peers.queues.rmq import Local
from benchmarks.peers.workloads import latency
from benchmarks.traffic import TOPIC, consume, send, send_prebuilt
from rmqclient import Producer

BODY_BYTES = 100
_RATE = 1_000
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Work:
    """Something to run on a directory; ``count`` is how many messages it takes."""

    title: str
    count: int
    run: Callable[[Path, int], object]
    prepare: Callable[[Path, int], object] = lambda _root, _count: None
    """Runs before, and is not profiled."""


def _one_by_one(root: Path, count: int) -> object:
    return together(Child(send, root, count, BODY_BYTES))


def _in_batches(root: Path, count: int) -> object:
    return together(Child(send_prebuilt, root, count, BODY_BYTES))


def _handle(root: Path, _count: int) -> object:
    return together(Child(consume, root))


def _put_tasks(root: Path, count: int) -> None:
    with Producer(root) as producer:
        producer.create_topic(TOPIC, 4)
        for number in range(count):
            producer.send(TOPIC, number)


def do_nothing(_argument: int) -> None:
    """Be a task whose argument is decoded from JSON."""


def _run_tasks(root: Path, _count: int) -> object:
    return together(Child(consume, root, handle=do_nothing))


def _at_a_rate(root: Path, count: int) -> object:
    peer, address = Local(sync=False), str(root)
    receiver = Child(latency.receive, peer, address, count, _SECONDS)
    return together(receiver, Child(latency.send, peer, address, count, _RATE))


def _ask(root: Path, count: int) -> object:
    both: list[Child[Any]] = [Child(request.answer, root, count), Child(request.ask, root, count, 0.0)]
    return together(*both)


WORKS = {
    "send": Work("Send, each answered", 3_000_000, _one_by_one),
    "batches": Work("`send_batch` of 100", 5_000_000, _in_batches),
    "handle": Work("Handle and acknowledge each", 3_000_000, _handle, _in_batches),
    "tasks": Work("No-op tasks, their argument in JSON", 2_000_000, _run_tasks, _put_tasks),
    "latency": Work("Send and handle at 1,000/s", 20_000, _at_a_rate),
    "request": Work("Request and reply, back to back", 50_000, _ask),
}
"""By the name for the command; all in one process with one thread, those of the last two in two."""


def main() -> None:
    """Run the work that the command line names, in a directory that is prepared, with so many messages."""
    name, directory, count = sys.argv[1:]
    WORKS[name].run(Path(directory), int(count))
