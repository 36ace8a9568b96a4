"""Rebalance: seconds from a change of a large group until every queue has an owner again and the shares are even.

Members are push consumers with the default settings, many in each of several processes. The queues are empty, so the
benchmark measures the protocol, from the first word of shared memory that changes to the last grant.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks.child import Begin, Child
from benchmarks.measure import Benchmark, Samples, Size, Unit, at_most, scratch
from rmqclient import App, Producer
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import MessageStore, open_store

TOPIC, GROUP = "orders", "billing"
SECONDS: Unit = "s"
SETTLED = at_most(1.0)
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """How large the group is, and how often it changes."""

    repetitions: int
    processes: int = 8
    members: int = 200
    queues: int = 1_000
    strategies: tuple[str, ...] = ("averaged", "sticky")


def run(parameters: Parameters, directory: Path, samples: Samples) -> None:
    """Measure one member that joins, the same one that leaves, and a process that is killed."""
    samples.note(
        f"{parameters.members} members in {parameters.processes} processes share {parameters.queues} queues. Settled "
        "is: every queue has an owner, nobody has two more than another, and everybody has as many as that allows. By "
        "averaged nearly every queue moves when one of many members comes or goes; by sticky only what must."
    )
    for _ in range(parameters.repetitions):
        for strategy in parameters.strategies:
            with scratch(directory) as root, open_store(root, housekeeping=False) as store:
                _measure(parameters, strategy, store, samples)


def _measure(parameters: Parameters, strategy: str, store: MessageStore, samples: Samples) -> None:
    with Producer(store) as producer:
        producer.create_topic(TOPIC, parameters.queues)
    each = parameters.members // parameters.processes
    begun = time.monotonic()
    children = [Child(consume, store.root, strategy, each) for _ in range(parameters.processes)]
    for child in children:
        child.wait_until_ready()
    everybody = each * parameters.processes
    _until_settled(store, parameters.queues, everybody)
    samples.add("all start, interpreters included", strategy, SECONDS, time.monotonic() - begun)

    (one,) = _consumers(store, strategy, 1)
    begun = time.monotonic()
    one.start()
    _until_settled(store, parameters.queues, everybody + 1)
    samples.add("one joins", strategy, SECONDS, time.monotonic() - begun, SETTLED)

    begun = time.monotonic()
    one.close()
    _until_settled(store, parameters.queues, everybody)
    samples.add("one leaves", strategy, SECONDS, time.monotonic() - begun, SETTLED)

    begun = time.monotonic()
    children[0].begin()
    _until_settled(store, parameters.queues, everybody - each)
    samples.add(f"{each} are killed at once", strategy, SECONDS, time.monotonic() - begun, SETTLED)
    for child in children[1:]:
        child.begin()
    for child in children:
        with contextlib.suppress(RuntimeError, EOFError):
            child.result()


def consume(begin: Begin, root: Path, strategy: str, members: int) -> None:
    """Run in a child: be a member until the parent says to go on, then die as by ``kill -9``."""
    with open_store(root, create=False, housekeeping=False) as store:
        for consumer in _consumers(store, strategy, members):
            consumer.start()
        begin()
        os.kill(os.getpid(), signal.SIGKILL)


def _consumers(store: MessageStore, strategy: str, count: int) -> list[PushConsumer]:
    app = App(store.root)
    app.handler(TOPIC, group=GROUP, allocation=strategy)(_ignore)
    return [PushConsumer(store, app.handlers) for _ in range(count)]


def _ignore(message: object) -> None:
    """Handle nothing: the queues are empty."""


def _until_settled(store: MessageStore, queues: int, members: int) -> None:
    """Check every few milliseconds. Raises TimeoutError after a minute."""
    deadline = time.monotonic() + _TIMEOUT_S
    while (state := _state(store, queues, members)) is not None:
        if time.monotonic() > deadline:
            raise TimeoutError(state)
        time.sleep(0.005)


def _state(store: MessageStore, queues: int, members: int) -> str | None:
    """Return what is missing in words; None when the group is settled."""
    owners = store.groups.column("owner")
    shares = Counter(zip(owners, store.groups.column("owner_incarnation"), strict=True))
    free = owners.count(0) + queues - len(owners)
    if free or len(shares) != min(members, queues):
        return f"{free} of {queues} queues are free, {len(shares)} members have queues"
    least, most = min(shares.values()), max(shares.values())
    even = least >= queues // members and most <= -(-queues // members)
    return None if even else f"parts of {least} to {most} queues"


BENCHMARK = Benchmark(
    name="rebalance",
    title="Rebalancing a large group",
    parameters={
        Size.FULL: Parameters(repetitions=3),
        Size.QUICK: Parameters(repetitions=1),
        Size.SMALLEST: Parameters(repetitions=1, processes=2, members=4, queues=10),
    },
    run=run,
)
