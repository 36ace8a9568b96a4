"""Samples: the numbers of one moment, from words that processes share. Only the age of the oldest reads a message.

Rates are differences between two samples. ``in`` counts what was stored in topics of applications; ``out`` counts what
groups have finished, each group for itself, so two groups on one topic finish twice what comes in.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqclient.local.glance import DEAD_LETTER_PREFIX, RETRY_PREFIX, Glance, GroupQueue, Queue
from rmqclient.names import MEMBER_SEPARATOR
from rmqclient.store import HALF_TOPIC, OPERATION_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC

_GROUPS_KEPT = 100
OWN_GROUPS = frozenset(("CID_RMQ_SYS_TRANS", "rmq_sys_timer"))
"""Groups by which the store says how far its own work is."""
_OWN_TOPICS = frozenset((HALF_TOPIC, OPERATION_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, "TRANS_CHECK_MAX_TIME_TOPIC"))


@dataclass(frozen=True, slots=True)
class Sample:
    """A store at one moment."""

    at_ms: int
    in_per_s: float
    out_per_s: float
    lag: int
    """Messages that some group has not finished, each group for itself."""
    oldest_s: float
    """Age of the oldest of these; 0 without any."""
    in_flight: int
    """Messages whose handlers run."""
    dead_letters: int
    """Neither replayed nor purged."""
    lag_of: dict[str, int]
    """Of the hundred groups that are furthest behind."""
    topic_rates: dict[str, float]
    """Messages a second that came into each topic, where any came."""

    def shown(self) -> dict[str, Any]:
        """Return the numbers as a page of a browser gets them."""
        return {
            "t": self.at_ms / 1000,
            "in": round(self.in_per_s, 1),
            "out": round(self.out_per_s, 1),
            "lag": self.lag,
            "oldest": round(self.oldest_s, 1),
            "flight": self.in_flight,
            "dead": self.dead_letters,
            "groups": self.lag_of,
        }


class Sampling:
    """Takes samples of one store, for one thread; remembers the last counts for the rates."""

    def __init__(self, glance: Glance) -> None:
        self._glance = glance
        self._taken_at: float | None = None
        self._ends: dict[tuple[str, int], int] = {}
        self._finished: dict[tuple[str, str, int], int] = {}
        self._dead = DeadLetterCount()

    def take(self) -> Sample:
        """Look now."""
        glance, now = self._glance, time.monotonic()
        queues = glance.queues()
        group_queues = glance.group_queues(queues)
        group_queues = [each for each in group_queues if each.group not in OWN_GROUPS]
        waiting = [
            each for each in group_queues if each.lag > 0 and not each.queue.topic.startswith(DEAD_LETTER_PREFIX)
        ]
        passed = max(now - self._taken_at, 1e-3) if self._taken_at is not None else 0.0
        topic_rates = self._topic_rates(queues, passed)
        out = self._finished_since(group_queues)
        self._taken_at = now
        return Sample(
            at_ms=time.time_ns() // 1_000_000,
            in_per_s=sum(topic_rates.values()),
            out_per_s=out / passed if passed else 0.0,
            lag=sum(each.lag for each in waiting),
            oldest_s=self._oldest_s(waiting),
            in_flight=len(glance.running()),
            dead_letters=self._dead.count(glance, queues),
            lag_of=_furthest(waiting),
            topic_rates=topic_rates,
        )

    def close(self) -> None:
        """Let go of the store's files."""
        self._glance.close()

    def _topic_rates(self, queues: list[Queue], passed: float) -> dict[str, float]:
        rates: dict[str, float] = {}
        for queue in queues:
            key = queue.topic, queue.queue_id
            came = queue.max_offset - self._ends.get(key, 0 if passed else queue.max_offset)
            self._ends[key] = queue.max_offset
            if came > 0 and passed and is_of_application(queue.topic):
                rates[queue.topic] = rates.get(queue.topic, 0.0) + came / passed
        return rates

    def _finished_since(self, group_queues: list[GroupQueue]) -> int:
        """Return how far groups came since the last sample; a move back by hand counts as nothing."""
        total = 0
        for each in group_queues:
            key = each.group, each.queue.topic, each.queue.queue_id
            total += max(0, each.committed_offset - self._finished.get(key, each.committed_offset))
            self._finished[key] = each.committed_offset
        return total

    def _oldest_s(self, waiting: list[GroupQueue]) -> float:
        places = {(each.queue, max(each.committed_offset, each.queue.min_offset)) for each in waiting}
        stored = [self._glance.stored_ms(*place) for place in places]
        oldest = min((each for each in stored if each is not None), default=None)
        return 0.0 if oldest is None else max(0.0, time.time() - oldest / 1000)


class DeadLetterCount:
    """How many dead letters wait; the journal is read again only when it has changed."""

    def __init__(self) -> None:
        self._journal: tuple[int, int] | None = None
        self._settled: dict[str, set[int]] = {}

    def count(self, glance: Glance, queues: list[Queue]) -> int:
        """Return those of all groups."""
        return sum(self.by_group(glance, queues).values())

    def by_group(self, glance: Glance, queues: list[Queue]) -> dict[str, int]:
        """Return those of each group that ever had one."""
        journal = _mark_of(Path(glance.root, "config", "deadLetters.jsonl"))
        if journal != self._journal:
            self._journal, self._settled = journal, glance.settled_letters()
        found: dict[str, int] = {}
        for group, theirs in glance.dead_letters(queues).items():
            settled = self._settled.get(DEAD_LETTER_PREFIX + group, set())
            span = range(theirs[0].min_offset, theirs[0].max_offset)
            found[group] = sum(queue.max_offset - queue.min_offset for queue in theirs)
            found[group] -= sum(offset in span for offset in settled)
        return found


def is_of_application(topic: str) -> bool:
    """Tell whether applications send to a topic: it is none of the library's own."""
    return topic not in _OWN_TOPICS and not topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))


def _mark_of(journal: Path) -> tuple[int, int] | None:
    try:
        status = journal.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


def _furthest(waiting: list[GroupQueue]) -> dict[str, int]:
    lag: dict[str, int] = {}
    for each in waiting:
        group = each.group.partition(MEMBER_SEPARATOR)[0]
        lag[group] = lag.get(group, 0) + each.lag
    return dict(sorted(lag.items(), key=lambda item: -item[1])[:_GROUPS_KEPT])
