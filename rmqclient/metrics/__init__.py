"""Metrics: what a store counts, for programs that look at it and for Prometheus.

::

    with Sampler("./store") as sampler:
        before = sampler.sample()
        ...
        after = sampler.sample()
        group_rates(before, after)["billing", "orders"]["handled"]  # messages per second

A sampler opens no store: it maps the runtime file for reading, takes no lock and changes nothing.

For Prometheus, ``families`` declares every metric, ``readings`` makes them of a sample, ``source`` reads them again and
again, and ``retried`` keeps one counter from falling meanwhile; ``text``, ``listener`` and ``collector`` show them.
``totals`` sums up by topic and by group, ``letters`` counts the dead letters that wait; the rows of a sample are
:mod:`rmqclient.store.samples.sample`.
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
    FOR_GOOD,
    GroupTotals,
    TopicTotals,
    by_group,
    by_topic,
    group_rates,
    per_second,
    topic_rates,
)
from rmqclient.store import WorkerStatus
from rmqclient.store.samples.sample import (
    CallSample,
    DiskSample,
    GroupQueueSample,
    QueueSample,
    Sample,
    TimerSample,
)
from rmqclient.store.samples.sampler import Sampler

__all__ = [
    "CONTENT_TYPE",
    "COUNTERS",
    "FOR_GOOD",
    "METRICS",
    "CallSample",
    "DeadLetterCount",
    "DiskSample",
    "Family",
    "GroupQueueSample",
    "GroupTotals",
    "Kind",
    "Listener",
    "Metric",
    "QueueSample",
    "Sample",
    "Sampler",
    "Shown",
    "Source",
    "StoreCollector",
    "TimerSample",
    "TopicTotals",
    "WorkerStatus",
    "by_group",
    "by_topic",
    "collect",
    "exposition",
    "group_rates",
    "per_second",
    "topic_rates",
]
