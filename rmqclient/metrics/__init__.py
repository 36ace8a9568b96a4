"""Metrics: what a store counts, for programs that look at it and for Prometheus.

::

    with Sampler("./store") as sampler:
        before = sampler.sample()
        ...
        after = sampler.sample()
        group_rates(before, after)["billing", "orders"]["handled"]  # messages per second

A sampler opens no store: it maps the runtime file for reading, takes no lock and changes nothing.

For Prometheus, ``families`` declares every metric, ``readings`` makes them of a sample, ``source`` reads them again and
again; ``text``, ``listener`` and ``collector`` show them.
``totals`` sums up by topic and by group, ``letters`` counts the dead letters that wait; a sample is an
:class:`~rmqclient.store.observe.observation.Observation`, and :mod:`rmqclient.store.observe.summary` tells of it how
each group stands. What groups did in the last hour, day or month is in the history of the store: ``figures_of`` sums a
period up, ``points_of`` returns it in parts, for a chart, and ``known_s`` says how much of it was recorded
(:mod:`rmqclient.store.history`).
``marks_of`` returns what was done meanwhile, and by whom (:mod:`rmqclient.store.marks`).
"""

from rmqclient.metrics.collector import StoreCollector, collect
from rmqclient.metrics.families import METRICS, Family, Kind, Metric
from rmqclient.metrics.letters import DeadLetterCount
from rmqclient.metrics.listener import Listener
from rmqclient.metrics.readings import Shown
from rmqclient.metrics.source import Source
from rmqclient.metrics.text import CONTENT_TYPE, exposition
from rmqclient.metrics.totals import (
    COUNTERS,
    GroupTotals,
    TopicTotals,
    by_group,
    by_topic,
    group_rates,
    per_second,
    topic_rates,
)
from rmqclient.store import WorkerStatus
from rmqclient.store.history.figures import Figures, Point, figures_of, known_s, points_of
from rmqclient.store.marks import Mark, marks_of
from rmqclient.store.observe.observation import FOR_GOOD, Call, Disk, GroupQueue, Observation, Queue, Waits
from rmqclient.store.observe.sampler import Sampler
from rmqclient.store.observe.summary import Group, groups_of

__all__ = [
    "CONTENT_TYPE",
    "COUNTERS",
    "FOR_GOOD",
    "METRICS",
    "Call",
    "DeadLetterCount",
    "Disk",
    "Family",
    "Figures",
    "Group",
    "GroupQueue",
    "GroupTotals",
    "Kind",
    "Listener",
    "Mark",
    "Metric",
    "Observation",
    "Point",
    "Queue",
    "Sampler",
    "Shown",
    "Source",
    "StoreCollector",
    "TopicTotals",
    "Waits",
    "WorkerStatus",
    "by_group",
    "by_topic",
    "collect",
    "exposition",
    "figures_of",
    "group_rates",
    "groups_of",
    "known_s",
    "marks_of",
    "per_second",
    "points_of",
    "topic_rates",
]
