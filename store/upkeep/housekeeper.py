"""Housekeeper: the role that does what somebody has to do from time to time, in one process at a time.

Flushing, the checkpoint, ``consumerOffset.json``, the next commit log file ahead of the writers, and, in threads
beside the tasks, the delivery of messages that wait (:mod:`rmqclient.store.waiting.schedule`,
:mod:`rmqclient.store.waiting.timer`). The role is a byte lock, so the kernel takes it from a process that dies, and
every process that has the store open tries for it. Each task can be done twice, or by two.

A supervisor is preferred, because it lives longest: while one has the store open, the others leave the role to it.
"""

from __future__ import annotations

import datetime
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from rmqclient.store import layout
from rmqclient.store.errors import QueueError, StoreBusy, StorePoisoned
from rmqclient.store.files.file_lock import HOUSEKEEPER_BYTE, SUPERVISOR_BYTE, LockFile
from rmqclient.store.kernel._kernel import boottime
from rmqclient.store.runtime.shared_state import SharedState

if TYPE_CHECKING:
    from apscheduler.schedulers.background import BackgroundScheduler

_log = logging.getLogger(__name__)

_PREPARE_WORD = layout.RUNTIME_HEADER.at["prepare_word"]
_ATTEMPT_MS = 500
_CLOCK_STEP_S = 1.0


class Every(NamedTuple):
    """When a task runs; a plain number of ms stands for one that runs first after its interval."""

    interval_ms: int
    first_after_ms: int


class Housekeeper:
    """Tries for the role, and does its work while it has it.

    ``tasks`` maps a task to its interval; ``prepare`` makes the next commit log file, at once when a writer
    enters a new one. Each of ``beside`` runs in a thread of its own until the event it gets is set; then ``ending``
    wakes those that sleep otherwise.
    """

    def __init__(
        self,
        state: SharedState,
        lock: LockFile,
        tasks: dict[Callable[[], None], int | Every],
        prepare: Callable[[], None],
        beside: dict[str, Callable[[threading.Event], None]],
        ending: Callable[[], None],
    ) -> None:
        self._state = state
        self._lock = lock
        self._tasks = tasks
        self._prepare = prepare
        self._beside = beside
        self._ending = ending
        self._closed = threading.Event()
        self._preferred = False
        self._scheduler: BackgroundScheduler | None = None
        self._thread = threading.Thread(target=self._run, name="rmq-housekeeper", daemon=True)
        self._thread.start()

    @property
    def has_role(self) -> bool:
        """Whether this process is the housekeeper now."""
        return self._scheduler is not None

    def prefer(self) -> None:
        """This process is a supervisor: the role is its own, for as long as it has the store open."""
        self._preferred = True
        self._lock.try_shared(SUPERVISOR_BYTE)

    def close(self) -> None:
        """Give the role back; returns when no task runs any more."""
        self._closed.set()
        self._state.words.signal(_PREPARE_WORD)
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            if not self._may_serve() or not self._lock.try_exclusive(HOUSEKEEPER_BYTE):
                self._closed.wait(_ATTEMPT_MS / 1000)
                continue
            try:
                self._serve()
            finally:
                self._lock.unlock(HOUSEKEEPER_BYTE)

    def _may_serve(self) -> bool:
        return self._preferred or self._lock.holder(SUPERVISOR_BYTE) is None

    def _serve(self) -> None:
        ended = threading.Event()
        beside = [
            threading.Thread(target=run, args=(ended,), name=f"rmq-{name}", daemon=True)
            for name, run in self._beside.items()
        ]
        for thread in beside:
            thread.start()
        self._scheduler = _start_scheduler(self._tasks)
        ahead_s = _wall_clock_ahead_s()
        try:
            while not self._closed.is_set() and self._may_serve():
                if abs(_wall_clock_ahead_s() - ahead_s) > _CLOCK_STEP_S:
                    # The scheduler goes by the wall clock: set back by an hour, it would do nothing for an hour.
                    self._scheduler.shutdown(wait=True)
                    self._scheduler, ahead_s = _start_scheduler(self._tasks), _wall_clock_ahead_s()
                seen = self._state.words.load32(_PREPARE_WORD)
                guarded(self._prepare)()
                if not self._closed.is_set():
                    self._state.words.wait(_PREPARE_WORD, seen, _ATTEMPT_MS)
        finally:
            ended.set()
            self._ending()
            self._scheduler.shutdown(wait=True)
            self._scheduler = None
            for thread in beside:
                thread.join()


def _wall_clock_ahead_s() -> float:
    """Return how far the wall clock is ahead of the clock that nobody can set."""
    return time.time() - boottime() / 1e9


def _start_scheduler(tasks: dict[Callable[[], None], int | Every]) -> BackgroundScheduler:
    from apscheduler.executors.pool import ThreadPoolExecutor  # 60 ms of import that most processes never need
    from apscheduler.schedulers.background import BackgroundScheduler
    from apscheduler.triggers.base import BaseTrigger

    class After(BaseTrigger):  # type: ignore[misc]
        """An interval from now on.

        The trigger of the library counts every one that was missed: for hours, if the clock was set forward by years.
        """

        def __init__(self, interval_ms: int) -> None:
            self._interval = datetime.timedelta(milliseconds=interval_ms)

        def get_next_fire_time(self, _: datetime.datetime | None, now: datetime.datetime) -> datetime.datetime:
            return now + self._interval

    logging.getLogger("apscheduler").setLevel(logging.ERROR)  # a flush longer than its interval is no news
    scheduler = BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(5)},  # a flush must not wait for the index, retention or a compaction
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        timezone="UTC",
    )
    now = datetime.datetime.now(datetime.UTC)
    for task, every in tasks.items():
        interval_ms, first_after_ms = every if isinstance(every, Every) else (every, every)
        first = now + datetime.timedelta(milliseconds=first_after_ms)
        scheduler.add_job(guarded(task), After(interval_ms), next_run_time=first)
    scheduler.start()
    return scheduler


def guarded(task: Callable[[], None]) -> Callable[[], None]:
    """Wrap a task so that one failure is reported and the next run still comes."""

    def run() -> None:
        try:
            task()
        except StorePoisoned:
            pass  # reported by whoever saw the first failure; every sender is told
        except StoreBusy as error:
            _log.info("%s will be done next time: %s", task.__name__, error)
        except (QueueError, OSError) as error:
            _log.error("%s failed: %s", task.__name__, error)

    return run
