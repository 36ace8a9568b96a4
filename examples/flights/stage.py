"""Stage: the processes of the demonstration, as they are seen through the store.

The supervisor with its workers is one process tree, the replay another. The demonstration does not ask them: the
store shows how far they are, and which worker has which queue.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from examples.flights.app import GROUPS, QUEUES, TOPIC
from rmqclient.admin import Admin
from rmqclient.metrics import Sampler
from rmqclient.store import MessageStore, WorkerState

REPOSITORY = Path(__file__).parents[2]
STALL_LIMIT_S = 60.0
"""Longer than any wait without progress, unless something is broken."""

_LOOK_INTERVAL_S = 0.02
_STOP_TIMEOUT_S = 40.0


class DemoFailed(Exception):
    """The demonstration failed. The text says what happened."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The progress of the replay and of each group."""

    sent: int
    acknowledged: dict[str, int]
    """Number of acknowledged messages by group."""

    @property
    def slowest(self) -> int:
        """The number of messages that every group has handled."""
        return min(self.acknowledged.values())


@dataclass(frozen=True, slots=True)
class Victim:
    """A worker that will be killed."""

    pid: int
    epochs: dict[tuple[str, int], int]
    """The epochs of its queues, by group and queue id. The next owner has a greater epoch."""

    def queues(self, group: str) -> list[int]:
        """Return the ids of its queues in a group."""
        return sorted(queue_id for name, queue_id in self.epochs if name == group)


@dataclass(frozen=True, slots=True)
class Takeover:
    """The fate of the queues of a killed worker."""

    victim: Victim
    heirs: tuple[int, ...]
    """Process ids of their next owners."""

    seconds: float
    """From the kill until the last queue had a new owner, in seconds."""


class Processes:
    """Watches for processes that end too early, and for a stall of the demonstration."""

    def __init__(self, **running: subprocess.Popen[bytes]) -> None:
        self._running = running
        self._seen: object = None
        self._moved_at = time.monotonic()

    def look(self, seen: object) -> None:
        """Wait a moment. Raises DemoFailed if a process failed, or if ``seen`` did not change for a minute."""
        for name, process in self._running.items():
            if process.poll() not in {None, 0}:
                raise DemoFailed(f"the {name} ended with exit code {process.returncode}")
        now = time.monotonic()
        if seen != self._seen:
            self._seen, self._moved_at = seen, now
        elif now - self._moved_at > STALL_LIMIT_S:
            raise DemoFailed(f"no progress for {STALL_LIMIT_S:g} s: {seen}")
        time.sleep(_LOOK_INTERVAL_S)

    def including(self, **running: subprocess.Popen[bytes]) -> Self:
        """Watch these processes, too."""
        self._running |= running
        return self


@contextmanager
def workers_running(
    store: Path | str, results: Path, log: Path, *, processes: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the application under a supervisor; at the end, stop the supervisor and wait for it."""
    command = [
        "-m",
        "rmqclient.workers",
        "run",
        "examples.flights.app:app",
        "--processes",
        str(processes),
        "--store",
        str(store),
    ]
    environment = {**os.environ, "FLIGHTS_RESULTS": str(results)}
    with log.open("wb") as output, _process(command, output, environment) as supervisor:
        try:
            yield supervisor
        finally:
            _stop(supervisor)


@contextmanager
def replay_running(store: Path | str, log: Path, flights: int) -> Iterator[subprocess.Popen[bytes]]:
    """Send the first ``flights`` flights from a separate process, which is ended if it still runs at the end."""
    command = ["-m", "examples.flights.replay", "--store", str(store), "--flights", str(flights)]
    with log.open("wb") as output, _process(command, output, dict(os.environ)) as replay:
        try:
            yield replay
        finally:
            replay.terminate()


def counts(store: MessageStore) -> Counts:
    """Return the progress of the replay and of the groups. Raises UnknownTopic before the topic is made."""
    acknowledged = {
        group: sum(queue.committed_offset + queue.acknowledged_ahead for queue in Admin(store).lag(group))
        for group in GROUPS
    }
    return Counts(Admin(store).topic(TOPIC).messages, acknowledged)


def lag(store: MessageStore) -> int:
    """Return the number of messages that the groups together have not acknowledged."""
    return sum(queue.lag for group in GROUPS for queue in Admin(store).lag(group))


def ready_workers(store: MessageStore) -> list[int]:
    """Return the process ids of the workers that deliver messages."""
    with Sampler(store.root) as sampler:
        return [status.pid for status in sampler.sample().workers if status.state is WorkerState.READY]


def queues_by_owner(store: MessageStore) -> dict[tuple[str, int], tuple[int | None, int]]:
    """Return the process id of the owner (None without an owner) and the epoch of each group's queues."""
    return {
        (group, queue.queue_id): (_pid(queue.owner), queue.epoch)
        for group in GROUPS
        for queue in Admin(store).lag(group)
    }


def wait_for_workers(store: MessageStore, watched: Processes, workers: int) -> None:
    """Wait until every queue has an owner, and each worker queues in every group. Raises DemoFailed."""
    while True:
        owners = queues_by_owner(store)
        pids = [{pid for (name, _), (pid, _) in owners.items() if name == group} for group in GROUPS]
        if len(owners) == QUEUES * len(GROUPS) and all(len(each) == workers and None not in each for each in pids):
            return
        watched.look(owners)


def choose_victim(store: MessageStore) -> Victim:
    """Return a worker that has queues in every group. Raises DemoFailed if no worker has."""
    owners = queues_by_owner(store)
    for pid in ready_workers(store):
        epochs = {queue: epoch for queue, (owner, epoch) in owners.items() if owner == pid}
        if {group for group, _ in epochs} == set(GROUPS):
            return Victim(pid, epochs)
    raise DemoFailed(f"no worker has queues in every group: {owners}")


def kill(store: MessageStore, victim: Victim, processes: Processes) -> Takeover:
    """Kill a worker, and wait until others have taken over all of its queues. Raises DemoFailed if they do not."""
    begin = time.monotonic()
    os.kill(victim.pid, signal.SIGKILL)
    while True:
        now = queues_by_owner(store)
        heirs = {now[queue][0] for queue, epoch in victim.epochs.items() if now[queue][1] > epoch}
        if None not in heirs and all(now[queue][1] > epoch for queue, epoch in victim.epochs.items()):
            pids = tuple(sorted(heir for heir in heirs if heir is not None))
            return Takeover(victim, pids, time.monotonic() - begin)
        processes.look(now)


def _pid(client_id: str | None) -> int | None:
    """Return the process id in ``host@pid#...``."""
    return None if client_id is None else int(client_id.rpartition("@")[2].partition("#")[0])


def _stop(supervisor: subprocess.Popen[bytes]) -> None:
    """Stop a supervisor and let messages in flight finish. If it does not stop, kill it; its workers then stop, too."""
    supervisor.terminate()
    try:
        supervisor.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        supervisor.kill()


def _process(arguments: list[str], output: IO[bytes], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )
