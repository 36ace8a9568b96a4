"""Jobs: dead letters that this process replays or drops, one job at a time, as fast as it was asked to."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Literal

from rmqclient.backend import Backend
from rmqclient.errors import LettersRejected, QueueError
from rmqclient.failures import dead_letters
from rmqclient.failures.dead_letters import DeadLetter, Selection
from rmqclient.message import SendResult
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

What = Literal["replay", "drop"]

_KEPT = 50
"""Jobs that have ended, and results of each, that are shown."""

_log = Log("rmqclient.dashboard")


class JobRuns(Exception):
    """Another job is not at its end; the text says which."""


@dataclass(slots=True, kw_only=True)
class Job:
    """Some dead letters of one group, which are replayed or dropped. Its thread writes; pages read."""

    what: What
    group: str
    selection: Selection
    asked: int
    """How many matched when it was asked for."""
    rate: float
    """Dead letters a second, at most."""
    only_group: bool
    author: str
    back: str
    """The query of the page that it was asked from."""
    number: int = 0
    done: int = 0
    results: deque[tuple[DeadLetter, SendResult | None]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    """The last ones, each with its new place if it was replayed."""
    error: str = ""
    begun_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None
    is_cancelled: bool = False

    @property
    def is_running(self) -> bool:
        """Whether it is not at its end."""
        return self.ended_s is None

    @property
    def seconds(self) -> float:
        """For how long it runs or ran."""
        return (self.ended_s or time.monotonic()) - self.begun_s

    @property
    def left_s(self) -> float | None:
        """How long it will take yet, as fast as it was so far; None before the first one and at the end."""
        return self.seconds / self.done * max(0, self.asked - self.done) if self.done and self.is_running else None


class Jobs:
    """The jobs of one dashboard, the last ones; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque(maxlen=_KEPT)
        self._count = 0
        self._thread: GuardedThread | None = None

    def start(self, backend: Backend, job: Job) -> Job:
        """Start a job. Raises JobRuns."""
        with self._lock:
            if self._jobs and self._jobs[-1].is_running:
                raise JobRuns(f"job {self._jobs[-1].number} is at work: wait for it, or cancel it")
            self._count = job.number = self._count + 1
            self._jobs.append(job)
            self._thread = GuardedThread(target=_run, args=(backend, job), name="rmq-dashboard-job")
            self._thread.start()
        return job

    def all(self) -> list[Job]:
        """Return the jobs, the newest first."""
        return list(reversed(self._jobs))

    def get(self, number: int) -> Job | None:
        """Return a job; None if it is not kept any more."""
        return next((each for each in self._jobs if each.number == number), None)

    def close(self) -> None:
        """Cancel what runs, and wait for it."""
        for each in self._jobs:
            each.is_cancelled = each.is_cancelled or each.is_running
        if self._thread is not None:
            self._thread.join()


def _run(backend: Backend, job: Job) -> None:
    steps = _replaying(backend, job) if job.what == "replay" else _dropping(backend, job)
    try:
        for result in steps:
            job.done += 1
            job.results.append(result)
            if job.is_cancelled:
                break
    except LettersRejected as error:
        job.error = f"{len(error.message_ids):,} could not be stored again, and wait as before: {error.reason}"
    except (QueueError, OSError) as error:
        job.error = str(error)
    finally:
        steps.close()  # it says in the marks how many there were
        job.ended_s = time.monotonic()
        _log.info("job %d: %s of group %s ended: %d of %d%s", job.number, job.what, job.group, job.done, job.asked,
                  f", {job.error}" if job.error else "")  # fmt: skip


def _replaying(backend: Backend, job: Job) -> Generator[tuple[DeadLetter, SendResult | None], None, None]:
    yield from dead_letters.replay(
        backend, job.group, job.selection, rate=job.rate, only_group=job.only_group, author=job.author
    )


def _dropping(backend: Backend, job: Job) -> Generator[tuple[DeadLetter, SendResult | None], None, None]:
    begun = time.monotonic()
    for number, letter in enumerate(dead_letters.purge(backend, job.group, job.selection, author=job.author), 1):
        yield letter, None
        time.sleep(max(0.0, begun + number / job.rate - time.monotonic()))
