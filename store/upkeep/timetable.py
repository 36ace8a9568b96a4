"""Timetable: tasks that run at fixed intervals, beside each other.

The intervals are counted by a clock that setting the wall clock does not move: that of the host, which counts what the
store needs, or :func:`rmqclient.store.clock.elapsed_ns`, for what applications wait for, which tests move. An interval
begins when its task is started. A task that is still running when its next turn comes misses that turn.

:data:`_THREADS` threads share the tasks: a flush must wait neither for the index nor for a long pass of retention or
compaction. They are daemon threads, so a process that ends without closing its store does not wait for them.
"""

from __future__ import annotations

from _queue import SimpleQueue  # that of `queue`, which gevent replaces
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rmqclient.store import clock
from rmqclient.store.clock import boottime
from rmqclient.store.errors import LimitReached, QueueError, StoreBusy, StoreError, StorePoisoned, StoreReplaced
from rmqclient.store.native_threads import threading
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_THREADS = 5
_LONGEST_SLEEP_S = 0.5
"""Sleeping does not count the time of a suspended machine, which the clocks do."""
_TOLD_AGAIN_NS = 60 * 10**9
"""Some tasks run five times a second. On a full disk, a line for each failure would need room, too."""
_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000

Task = Callable[[], None]


class Every(NamedTuple):
    """When a task runs; a plain number of milliseconds stands for a task that first runs after its interval."""

    interval_ms: int
    first_after_ms: int
    now_ns: Callable[[], int] = boottime


class Timetable:
    """Runs tasks at their intervals. :meth:`run` may be called again when it has returned.

    ``check_in_place`` is as for :func:`run_guarded`.
    """

    def __init__(self, tasks: Mapping[Task, int | Every], check_in_place: Callable[[], None]) -> None:
        self._check_in_place = check_in_place
        self._tasks = {
            task: every if isinstance(every, Every) else Every(every, every) for task, every in tasks.items()
        }
        self._due_ns: dict[Task, int] = {}
        self._started: SimpleQueue[Task | None] = SimpleQueue()
        self._busy: set[Task] = set()
        self._told = Told()
        self._is_short = False  # of threads, and has said so

    def run(self, ended: threading.Event) -> None:
        """Run the tasks until ``ended`` is set and the clock rung; return when none of them runs any more."""
        self._due_ns = {task: every.now_ns() + every.first_after_ms * _NS_PER_MS for task, every in self._tasks.items()}
        threads = list[threading.Thread]()
        while True:
            heard = clock.heard()
            self._start_missing(threads)
            pause_s = self._start_due()
            if ended.is_set():
                break
            clock.wait(heard, pause_s)
        for _ in threads:
            self._started.put(None)
        for thread in threads:
            thread.join()

    def _start_missing(self, threads: list[threading.Thread]) -> None:
        """Start the threads that are missing. While no more can be started, those that run share the tasks."""
        while len(threads) < _THREADS:
            thread = GuardedThread(target=self._work, name="rmq-task")
            try:
                thread.start()
            except LimitReached as error:
                if not self._is_short:
                    _log.error("%d of %d threads run the tasks: %s", len(threads), _THREADS, error)
                self._is_short = True
                return
            threads.append(thread)
        self._is_short = False

    def _start_due(self) -> float:
        """Start the tasks whose turn it is; return in how many seconds to look again."""
        pause_s = _LONGEST_SLEEP_S
        for task, every in self._tasks.items():
            now = every.now_ns()
            if self._due_ns[task] <= now:
                self._due_ns[task] = now + every.interval_ms * _NS_PER_MS
                if task not in self._busy:
                    self._busy.add(task)
                    self._started.put(task)
            left_s = (self._due_ns[task] - now) / _NS_PER_S
            pause_s = min(pause_s, left_s if every.now_ns is boottime else clock.real_s(left_s))
        return pause_s

    def _work(self) -> None:
        while (task := self._started.get()) is not None:
            run_guarded(task, self._check_in_place, self._told)
            self._busy.discard(task)


class Told:
    """The failures of tasks that were logged within a minute."""

    def __init__(self) -> None:
        self._at_ns: dict[tuple[Task, type], int] = {}

    def has(self, task: Task, error: Exception) -> bool:
        """Tell whether a failure of this kind was logged; if not, it counts as logged from now on."""
        now, kind = boottime(), (task, type(error))
        is_told = kind in self._at_ns and now - self._at_ns[kind] < _TOLD_AGAIN_NS
        if not is_told:
            self._at_ns[kind] = now
        return is_told


def run_guarded(task: Task, check_in_place: Callable[[], None], told: Told) -> None:
    """Run a task and report its failure, unless that was ``told``, so that its next turn still comes.

    ``check_in_place`` raises StoreReplaced, and logs why the first time. A task that fails then needs no words of its
    own: it has found a file missing before anybody has found out why.
    """
    try:
        task()
    except (StorePoisoned, StoreReplaced):
        pass  # the first failure was logged where it happened, and every sender is told
    except StoreBusy as error:
        _log.info("%s will be done next time: %s", task.__name__, error)
    except (QueueError, OSError) as error:
        if _is_in_place(check_in_place) and not told.has(task, error):
            _log.error("%s failed: %s", task.__name__, error)
    except Exception as error:  # noqa: BLE001 - a mistake in one task must not end the thread that serves the others
        if not told.has(task, error):
            _log.exception("%s failed", task.__name__)


def _is_in_place(check_in_place: Callable[[], None]) -> bool:
    try:
        check_in_place()
    except StoreReplaced:
        return False
    except StoreError:
        pass  # a disk that fails says nothing about the name
    return True
