"""Timetable: tasks that run at fixed intervals, beside each other.

The intervals are counted on CLOCK_BOOTTIME, so setting the wall clock neither delays a task nor brings it forward. An
interval begins when its task is started. A task that is still running when its next turn comes misses that turn.

:data:`_THREADS` threads share the tasks: a flush must wait neither for the index nor for a long pass of retention or
compaction. They are daemon threads, so a process that ends without closing its store does not wait for them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import NamedTuple

from rmqclient.store.errors import QueueError, StoreBusy, StorePoisoned
from rmqclient.store.kernel._kernel import boottime

_log = logging.getLogger(__name__)

_THREADS = 5
_LONGEST_SLEEP_S = 0.5
"""Sleeping does not count the time of a suspended machine, which CLOCK_BOOTTIME does."""
_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000

Task = Callable[[], None]


class Every(NamedTuple):
    """When a task runs; a plain number of milliseconds stands for a task that first runs after its interval."""

    interval_ms: int
    first_after_ms: int


class Timetable:
    """Runs tasks at their intervals. :meth:`run` may be called again when it has returned."""

    def __init__(self, tasks: Mapping[Task, int | Every]) -> None:
        self._tasks = {
            task: every if isinstance(every, Every) else Every(every, every) for task, every in tasks.items()
        }
        self._due_ns: dict[Task, int] = {}
        self._started: SimpleQueue[Task | None] = SimpleQueue()
        self._busy: set[Task] = set()

    def run(self, ended: threading.Event) -> None:
        """Run the tasks until ``ended`` is set; return when none of them runs any more."""
        now = boottime()
        self._due_ns = {task: now + every.first_after_ms * _NS_PER_MS for task, every in self._tasks.items()}
        threads = [threading.Thread(target=self._work, name="rmq-task", daemon=True) for _ in range(_THREADS)]
        for thread in threads:
            thread.start()
        while not ended.wait(self._start_due()):
            pass
        for _ in threads:
            self._started.put(None)
        for thread in threads:
            thread.join()

    def _start_due(self) -> float:
        """Start the tasks whose turn it is; return in how many seconds to look again."""
        now = boottime()
        for task, due in self._due_ns.items():
            if due <= now:
                self._due_ns[task] = now + self._tasks[task].interval_ms * _NS_PER_MS
                if task not in self._busy:
                    self._busy.add(task)
                    self._started.put(task)
        next_due = min(self._due_ns.values(), default=now + _NS_PER_S)
        return min((next_due - now) / _NS_PER_S, _LONGEST_SLEEP_S)

    def _work(self) -> None:
        while (task := self._started.get()) is not None:
            run_guarded(task)
            self._busy.discard(task)


def run_guarded(task: Task) -> None:
    """Run a task and report its failure, so that its next turn still comes."""
    try:
        task()
    except StorePoisoned:
        pass  # the first failure was logged where it happened, and every sender is told
    except StoreBusy as error:
        _log.info("%s will be done next time: %s", task.__name__, error)
    except (QueueError, OSError) as error:
        _log.error("%s failed: %s", task.__name__, error)
    except Exception:  # noqa: BLE001 - a mistake in one task must not end the thread that serves the others
        _log.exception("%s failed", task.__name__)
