"""Moments: the numbers of one moment, from words that processes share. Only the age of the oldest reads a message.

Rates are those of the counters between two samples, in one unit, which is that of the history, too: a message counts
once for each group that gets it. So what was published equals what was handled and what became a dead letter, unless a
group falls behind. What the library sends itself counts nowhere.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any, NamedTuple

from rmqclient.metrics import DeadLetterCount, Observation, Sampler, group_rates, topic_rates
from rmqclient.names import is_of_application
from rmqclient.store.observe.summary import Group, groups_of


class Rates(NamedTuple):
    """Messages a second of one group, or of all."""

    published: float = 0.0
    """Stored in its topics; what it stores again for a retry aside."""
    handled: float = 0.0
    """Finished by a handler that returned, by a commit, or because the group does not want them."""
    born: float = 0.0
    """That became dead letters."""

    def __add__(self, other: object) -> Rates:
        """Return the rates of both."""
        if not isinstance(other, Rates):
            return NotImplemented
        return Rates(self.published + other.published, self.handled + other.handled, self.born + other.born)


class Moment(NamedTuple):
    """A store at one moment."""

    at_ms: int
    rates: Rates
    """Of all groups."""
    lag: int
    """Messages that some group has not finished, each group for itself."""
    oldest_s: float
    """Age of the oldest of these; 0 without any."""
    in_flight: int
    """Messages that members have taken and not finished."""
    dead_letters: int
    """Neither replayed nor purged."""
    by_group: dict[str, tuple[Rates, int]]
    """Rates and lag of each group."""
    dead_letters_of: dict[str, int]
    """By group."""
    topic_rates: dict[str, float]
    """Messages a second that came into each topic of applications, each once, where any came."""

    def shown(self, group: str = "") -> dict[str, Any]:
        """Return the numbers as a page of a browser gets them: rates and lag are those of one group, or of all."""
        rates, lag = self.by_group.get(group, (Rates(), 0)) if group else (self.rates, self.lag)
        return {
            "t": self.at_ms / 1000,
            **{name: round(rate, 1) for name, rate in rates._asdict().items()},
            "lag": lag,
            "oldest": round(self.oldest_s, 1),
            "flight": self.in_flight,
            "dead": self.dead_letters,
        }


class Kept:
    """What charts show of a moment that has passed: numbers in an array, some tens of bytes for each group.

    ``before`` is the one that was kept before it. They share the names of the groups while these are the same.
    """

    __slots__ = ("_numbers", "_of_all", "groups")

    def __init__(self, moment: Moment, before: Kept | None = None) -> None:
        groups = tuple(moment.by_group)
        self.groups: tuple[str, ...] = before.groups if before is not None and before.groups == groups else groups
        self._numbers = array("d", (each for rates, lag in moment.by_group.values() for each in (*rates, lag)))
        self._of_all = moment._replace(by_group={}, dead_letters_of={}, topic_rates={})

    @property
    def at_ms(self) -> int:
        """When it was."""
        return self._of_all.at_ms

    def shown(self, group: str = "") -> dict[str, Any]:
        """Return the numbers as :meth:`Moment.shown` does."""
        if group not in self.groups:
            return self._of_all.shown(group)
        at = self.groups.index(group) * _NUMBERS
        *rates, lag = self._numbers[at : at + _NUMBERS]
        return self._of_all._replace(by_group={group: (Rates(*rates), int(lag))}).shown(group)


_NUMBERS = len(Rates._fields) + 1
"""Of each group: its rates and its lag."""


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
        groups = groups_of(now)
        by_group = _by_group(before, now, groups, arrived)
        dead_letters = self._dead.by_group(now.queues)
        return Moment(
            at_ms=now.wall_ms,
            rates=sum((rates for rates, _ in by_group.values()), Rates()),
            lag=sum(each.lag for each in groups),
            oldest_s=max((each.oldest_s(now.wall_ms) or 0.0 for each in groups), default=0.0),
            in_flight=sum(each.in_flight for each in groups),
            dead_letters=sum(dead_letters.values()),
            by_group=by_group,
            dead_letters_of=dict(dead_letters),
            topic_rates={topic: rate for topic, rate in arrived.items() if rate and is_of_application(topic)},
        )

    def close(self) -> None:
        """Let go of the store's files."""
        self._sampler.close()


def _by_group(
    before: Observation, now: Observation, groups: list[Group], arrived: dict[str, float]
) -> dict[str, tuple[Rates, int]]:
    finished: dict[str, Rates] = {}
    for (group, _), rates in group_rates(before, now).items():
        done = Rates(0.0, rates["handled"] + rates["skipped"], rates["dead_lettered"])
        finished[group] = finished.get(group, Rates()) + done
    return {
        each.group: (
            finished.get(each.group, Rates()) + Rates(sum(arrived.get(topic, 0.0) for topic in each.topics)),
            each.lag,
        )
        for each in groups
    }
