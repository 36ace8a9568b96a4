"""Samples: the numbers of one moment, from words that processes share. Only the age of the oldest reads a message.

Rates are those of the counters between two samples. ``in`` is what was stored in topics of applications. ``out`` is
what groups have finished for good, each group for itself, so two groups on one topic finish twice what comes in.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqclient.metrics import FOR_GOOD, DeadLetterCount, GroupQueueSample, Sampler, group_rates, topic_rates
from rmqclient.metrics import Sample as StoreSample
from rmqclient.metrics.topics import is_of_application
from rmqclient.names import group_and_member

_GROUPS_KEPT = 100


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
    """Messages that members have taken and not finished."""
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
    """Takes samples of one store, for one thread; remembers the last look for the rates."""

    def __init__(self, root: Path) -> None:
        self._sampler = Sampler(root)
        self._before: StoreSample | None = None
        self._dead = DeadLetterCount(root)

    def take(self) -> Sample:
        """Look now. Raises as :meth:`rmqclient.metrics.Sampler.sample`."""
        now = self._sampler.sample()
        before, self._before = self._before or now, now
        arrived = {topic: rates["messages_in"] for topic, rates in topic_rates(before, now).items()}
        coming_in = {topic: rate for topic, rate in arrived.items() if rate and is_of_application(topic)}
        finished = group_rates(before, now).values()
        waiting = [each for each in now.group_queues if each.lag]
        oldest_ms = min((each.oldest_stored_ms for each in waiting if each.oldest_stored_ms), default=now.wall_ms)
        return Sample(
            at_ms=now.wall_ms,
            in_per_s=sum(coming_in.values()),
            out_per_s=sum(rates[fate] for rates in finished for fate in FOR_GOOD),
            lag=sum(each.lag for each in waiting),
            oldest_s=max(0, now.wall_ms - oldest_ms) / 1000,
            in_flight=sum(each.in_flight for each in now.group_queues),
            dead_letters=sum(self._dead.by_group(now.queues).values()),
            lag_of=_furthest(waiting),
            topic_rates=coming_in,
        )

    def close(self) -> None:
        """Let go of the store's files."""
        self._sampler.close()


def _furthest(waiting: list[GroupQueueSample]) -> dict[str, int]:
    lag: dict[str, int] = {}
    for each in waiting:
        group = group_and_member(each.group)[0]
        lag[group] = lag.get(group, 0) + each.lag
    return dict(sorted(lag.items(), key=lambda item: -item[1])[:_GROUPS_KEPT])
