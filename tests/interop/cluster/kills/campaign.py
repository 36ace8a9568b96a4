"""A campaign: producers and workers over one place, deaths round by round, then peace until everything is handled."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rmqclient import Producer, PullConsumer
from rmqclient.errors import QueueError
from tests.checker.history import now
from tests.interop.cluster.clusters import Cluster
from tests.interop.cluster.kills import load
from tests.interop.cluster.kills.evidence import NEVER, Evidence, Fault, collect
from tests.interop.cluster.kills.judging import SECOND, WRITES_AFTER_S
from tests.interop.cluster.workers import Workers, start_workers
from tests.interop.rocketmq import TOP

APPLICATION = Path(__file__).with_name("load.py")
_PRODUCERS = 2
_PER_SECOND = 50.0
_WORKERS = 3
_YOUNG = 0.3
"""Part of the brokers that are killed at any age."""
_PEACE_S = 240.0
"""Within which everything is handled after the last death: a broker's lock of a queue ends after 60 s."""


@dataclass(slots=True)
class Campaign:
    """What runs, and what was killed so far."""

    place: str
    scratch: Path
    random: random.Random
    environment: dict[str, str]
    worker_places: tuple[str, ...]
    """Where the workers consume from, in turn."""
    per_second: float
    """Messages of each producer."""
    workers: list[Workers] = field(default_factory=list)
    producers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    started: int = 0

    @property
    def histories(self) -> Path:
        """Where every process writes down what it saw."""
        return self.scratch / "histories"

    def kill_worker(self) -> None:
        """Kill a worker with its supervisor, and start another one."""
        number = self.random.randrange(len(self.workers))
        at = now()
        self.workers[number].kill()
        self.workers[number] = self.start_worker()
        self.workers[number].ready(1)
        self.faults.append(Fault("worker", at, now()))

    def kill_broker(self, cluster: Cluster) -> None:
        """Kill a broker, and start it again on its store. Most are old enough to have written their offsets down."""
        started = {fault.name: fault.over for fault in self.faults}
        node = self.random.choice(cluster.brokers)
        if self.random.random() > _YOUNG:
            node = min(cluster.brokers, key=lambda each: started.get(each.name, 0))
            time.sleep(max(0.0, WRITES_AFTER_S - (now() - started.get(node.name, 0)) / SECOND))
        at = now()
        node.server.kill()
        time.sleep(self.random.uniform(0.0, 2.0))
        cluster.restart(node.server)
        self.faults.append(Fault("broker", at, now(), node.name))

    def start_worker(self) -> Workers:
        """Start a supervisor with one worker; it need not be ready."""
        self.started += 1
        log = self.scratch / f"worker-{self.started}.log"
        options = ("--processes", "1", "--member-name", f"m{self.started}")
        place = self.worker_places[self.started % len(self.worker_places)]
        return start_workers(APPLICATION, place, log, *options, environment=self.environment)

    def start_producer(self, number: int) -> subprocess.Popen[bytes]:
        """Start a producer, which sends at once."""
        module = "tests.interop.cluster.kills.producing"
        place = self.worker_places[number % len(self.worker_places)]
        command = [sys.executable, "-m", module, place, str(number), str(self.per_second)]
        with (self.scratch / f"producer-{number}.log").open("wb") as log:
            return subprocess.Popen(command, cwd=TOP, env={**os.environ, **self.environment}, stdout=log, stderr=log)

    def kill_all(self) -> None:
        """Kill every worker that lives."""
        for workers in self.workers:
            workers.kill()

    def rest(self) -> None:
        """Let everything run for a moment, and note who died by itself."""
        time.sleep(self.random.uniform(0.5, 2.0))
        for process in (*self.producers, *(workers.process for workers in self.workers)):
            if (status := process.poll()) is not None:
                raise RuntimeError(f"a process ended with {status} that nobody had killed: see {self.scratch}")


@contextmanager
def campaign(
    place: str, scratch: Path, seed: int, worker_places: tuple[str, ...] = (), per_second: float = _PER_SECOND
) -> Iterator[Campaign]:
    """Make the topic, and run producers and workers until the block ends.

    They run over ``place``, or by turns over ``worker_places``, which are other doors to it.
    """
    mark = f"{seed:x}-{now():x}"
    environment = {"LOAD_MARK": mark, "LOAD_PLACE": place, "LOAD_HISTORIES": str(scratch / "histories")}
    (scratch / "histories").mkdir(parents=True)
    doors = worker_places or (place,)
    running = Campaign(place, scratch, random.Random(seed), environment, doors, per_second)
    with Producer(place) as producer:
        producer.create_topic(topic_of(running), load.QUEUES)
    with ExitStack() as stack:
        stack.callback(running.kill_all)
        for _ in range(max(_WORKERS, 2 * len(worker_places))):
            running.workers.append(running.start_worker())
        for workers in running.workers:
            workers.ready(1)
        for number in range(1, _PRODUCERS + 1):
            running.producers.append(running.start_producer(number))
            stack.callback(running.producers[-1].kill)
        yield running


def topic_of(running: Campaign) -> str:
    """Return the topic of a campaign, as its processes name it."""
    return f"Load-{running.environment['LOAD_MARK']}"


def run(
    place: str,
    scratch: Path,
    seed: int,
    rounds: int,
    strike: Callable[[Campaign], None],
    worker_places: tuple[str, ...] = (),
    per_second: float = _PER_SECOND,
) -> Evidence:
    """Strike so many times, and return what was found out. Raises RuntimeError for a process that died by itself."""
    with campaign(place, scratch, seed, worker_places, per_second) as running:
        for _ in range(rounds):
            running.rest()
            strike(running)
        running.rest()
        for producer in running.producers:
            producer.terminate()
            if status := producer.wait(60):
                raise RuntimeError(f"a producer ended with {status}: see {running.scratch}")
        stored = final_read(place, topic_of(running))
        deadline = time.monotonic() + _PEACE_S
        while not is_handled(collect(running.histories, running.faults, stored)):
            if time.monotonic() > deadline:
                break  # the rules say what is missing
            time.sleep(1.0)
        for workers in running.workers:
            if status := workers.stop():
                raise RuntimeError(f"rmq run ended with {status}: see {workers.log_path}")
        return collect(running.histories, running.faults, stored)


def is_handled(evidence: Evidence) -> bool:
    """Tell whether each group has handled everything that is stored."""
    return len(evidence.calls) == len(load.GROUPS) and all(
        {(call.queue, call.offset) for call in calls if call.ended != NEVER} >= evidence.stored.keys()
        for calls in evidence.calls.values()
    )


def final_read(place: str, topic: str) -> dict[tuple[int, int], int]:
    """Return the message at each (queue, offset) of a topic."""
    found: dict[tuple[int, int], int] = {}
    with PullConsumer(place, group="final-read") as consumer:
        for queue in consumer.queues(topic):
            offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while offset < end:
                result = consumer.pull(queue, offset, limit=32)
                if result.next_offset <= offset:
                    raise QueueError(f"{queue} cannot be read at {offset}: {result.status}")
                for message in result.messages:
                    found[load.number_of(queue), message.queue_offset] = int(message.body)
                offset = result.next_offset
    return found
