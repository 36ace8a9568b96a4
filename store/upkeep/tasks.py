"""Tasks: what a housekeeper does, and how often. Each task is watched: a failure shows in ``rmq check``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from rmqclient.store import clock, layout
from rmqclient.store.log.dispatch import IndexDispatch
from rmqclient.store.parts import Parts
from rmqclient.store.runtime.passes import Passes
from rmqclient.store.settings.disk import LOOK_INTERVAL_MS, Disk
from rmqclient.store.upkeep.compaction import Compaction
from rmqclient.store.upkeep.consumer_offsets import ConsumerOffsets
from rmqclient.store.upkeep.flush import QUEUES_INTERVAL_MS, Flusher
from rmqclient.store.upkeep.retention import FIRST_RUN_AFTER_MS, Retention
from rmqclient.store.upkeep.timetable import Every

_INDEX_INTERVAL_MS = 200
_WAITING_INTERVAL_MS = 10_000
"""How often the progress of waiting messages is written. [flushDelayOffsetInterval]"""

Tasks: TypeAlias = dict[Callable[[], None], int | Every]
"""How often each task is due: an interval in ms, or when it is due first as well."""


def tasks_of(
    parts: Parts,
    flusher: Flusher,
    offsets: ConsumerOffsets,
    disk: Disk,
    retention: Retention,
    compaction: Compaction,
    index: IndexDispatch,
) -> Tasks:
    """Return what every store needs."""
    config, watched = parts.config, Passes(parts.state).watched
    tasks: Tasks = {
        watched("flushing the log", flusher.flush_timed): config.flush.interval_ms,
        watched("flushing all of the log", flusher.flush_log): config.flush.thorough_interval_ms,
        watched("flushing the queues", flusher.flush_queues_timed): QUEUES_INTERVAL_MS,
        watched("writing the checkpoint", flusher.flush_thorough): config.flush.queues_interval_ms,
        watched("writing consumerOffset.json", offsets.persist): config.offset_persist_interval_ms,
        watched("looking at the disk", disk.look): Every(LOOK_INTERVAL_MS, first_after_ms=0),
        watched("removing old files", retention.run): _moved(config.retention.interval_ms, FIRST_RUN_AFTER_MS),
        watched("compacting topics", compaction.run): _moved(config.compaction.interval_ms),
    }
    if config.message_index:
        tasks[watched("building the index", index.catch_up)] = _INDEX_INTERVAL_MS
    return tasks


def tasks_of_waiting(
    parts: Parts,
    persist_schedule: Callable[[], None],
    persist_timer: Callable[[], None],
    check_transactions: Callable[[], None],
) -> Tasks:
    """Return what a store needs for the messages that wait in it. For a replica its primary does this."""
    watched = Passes(parts.state).watched
    return {
        watched("writing delayOffset.json", persist_schedule): _WAITING_INTERVAL_MS,
        watched("writing the progress of the timer", persist_timer): _WAITING_INTERVAL_MS,
        watched("checking transactions", check_transactions): _moved(parts.config.transactions.check_interval_ms),
    }


def tasks_of_history(parts: Parts, record: Callable[[], None]) -> Tasks:
    """Return what a store needs for its history. A replica has none of its own."""
    shortest_s, _ = layout.HISTORY_RINGS[0]
    return {Passes(parts.state).watched("writing the history", record): _moved(shortest_s * 1000)}


def _moved(interval_ms: int, first_after_ms: int | None = None) -> Every:
    """Return when a task runs whose work applications wait for, so that a test may move it."""
    return Every(interval_ms, interval_ms if first_after_ms is None else first_after_ms, clock.elapsed_ns)
