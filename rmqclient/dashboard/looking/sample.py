"""Moments: the numbers of one moment, from words that processes share. Only the age of the oldest reads a message.

Rates are those of the counters between two samples. ``in`` is what was stored in topics of applications. ``out`` is
what groups have finished for good, each group for itself, so two groups on one topic finish twice what comes in.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqclient.metrics import FOR_GOOD, DeadLetterCount, Observation, Sampler, group_rates, topic_rates
from rmqclient.names import is_of_application
from rmqclient.store.observe.summary import Group, groups_of

_GROUPS_KEPT = 100


@dataclass(frozen=True, slots=True)
class Moment:
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
        self._before: Observation | None = None
        self._dead = DeadLetterCount(root)

    def take(self) -> Moment:
        """Look now. Raises as :meth:`rmqclient.metrics.Sampler.sample`."""
        now = self._sampler.sample()
        before, self._before = self._before or now, now
        arrived = {topic: rates["messages_in"] for topic, rates in topic_rates(before, now).items()}
        coming_in = {topic: rate for topic, rate in arrived.items() if rate and is_of_application(topic)}
        finished = group_rates(before, now).values()
        groups = groups_of(now)
        return Moment(
            at_ms=now.wall_ms,
            in_per_s=sum(coming_in.values()),
            out_per_s=sum(rates[fate] for rates in finished for fate in FOR_GOOD),
            lag=sum(each.lag for each in groups),
            oldest_s=max((each.oldest_s(now.wall_ms) or 0.0 for each in groups), default=0.0),
            in_flight=sum(each.in_flight for each in groups),
            dead_letters=sum(self._dead.by_group(now.queues).values()),
            lag_of=_furthest(groups),
            topic_rates=coming_in,
        )

    def close(self) -> None:
        """Let go of the store's files."""
        self._sampler.close()


def _furthest(groups: list[Group]) -> dict[str, int]:
    behind = sorted((each for each in groups if each.lag), key=lambda each: -each.lag)
    return {each.group: each.lag for each in behind[:_GROUPS_KEPT]}
