"""Families: every metric that is shown, with its type, its labels and what it means.

The names, types, labels and units of RocketMQ 5's exporter stand for the same thing here, so that its boards work; the
others begin with ``rmq_``. Retry and dead letter topics are not in ``messages_in`` and ``messages_out``, and lag has
``is_retry``, as there. A name has the suffix of its unit, as the scraped names of RocketMQ since 5.1.4 have.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple


class Kind(enum.Enum):
    """The type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. Series have :data:`NODE_LABELS`, too, and what the user adds."""

    name: str
    """As it is scraped; that of a counter ends in ``_total``."""
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()


class Point(NamedTuple):
    """One number of a series."""

    suffix: str
    """Behind the name of the metric: empty but for a histogram."""
    labels: Mapping[str, str]
    value: float


@dataclass(slots=True)
class Family:
    """A metric and its numbers."""

    metric: Metric
    points: list[Point] = field(default_factory=list)

    def add(self, value: float, *labels: str) -> None:
        """Add a series; ``labels`` are values, in the order of the metric's labels."""
        self.points.append(Point("", dict(zip(self.metric.labels, labels, strict=True)), value))

    def add_histogram(self, bounds: Iterable[float], counts: Iterable[int], total: float, *labels: str) -> None:
        """Add a series of a histogram: upper bounds, the count of each class, one class more, and the sum."""
        named, reached = dict(zip(self.metric.labels, labels, strict=True)), 0
        for bound, count in zip((*(f"{bound:g}" for bound in bounds), "+Inf"), counts, strict=True):
            reached += count
            self.points.append(Point("_bucket", {**named, "le": bound}, reached))
        self.points += [Point("_sum", named, total), Point("_count", named, reached)]


NODE_LABELS: Final = ("cluster", "node_type", "node_id")
"""Of every series: ``rmq``, ``broker``, and the name of the store's directory."""

_TOPIC = ("topic", "message_type", "is_system")
_TAKEN = ("topic", "consumer_group", "is_system")
_LAG = ("consumer_group", "topic", "is_retry", "is_system")
_STORAGE = ("storage_type", "storage_medium")
_GROUP = ("group", "topic")


def _counter(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(name, Kind.COUNTER, meaning, labels)


def _gauge(name: str, meaning: str, *labels: str) -> Metric:
    return Metric(name, Kind.GAUGE, meaning, labels)


METRICS: Final = (
    # --- RocketMQ's
    _counter("rocketmq_messages_in_total", "Messages appended to a topic.", *_TOPIC),
    _counter("rocketmq_throughput_in_total", "Bytes of the records appended to a topic.", *_TOPIC),
    _counter("rocketmq_messages_out_total", "Messages taken by members of a group, each time anew.", *_TAKEN),
    _counter("rocketmq_throughput_out_total", "Bytes of the records taken by members of a group.", *_TAKEN),
    _counter("rocketmq_send_to_dlq_messages_total", "Messages that became dead letters.", *_LAG[:2], "is_system"),
    _gauge("rocketmq_consumer_lag_messages", "Messages that a group has not committed.", *_LAG),
    _gauge("rocketmq_consumer_lag_latency_milliseconds", "Age of the oldest message not finished; 0 for none.", *_LAG),
    _gauge("rocketmq_consumer_inflight_messages", "Messages taken and not finished.", *_LAG),
    _gauge("rocketmq_consumer_ready_messages", "Messages that nobody has taken.", *_LAG),
    _gauge("rocketmq_consumer_queueing_latency_milliseconds", "Age of the oldest message not taken, or 0.", *_LAG),
    _gauge("rocketmq_consumer_connections", "Members of a group.", "consumer_group", "language", "consume_mode"),
    _gauge("rocketmq_timing_messages", "Messages that wait for their time."),
    _counter("rocketmq_timer_enqueue_total", "Messages that began to wait for their time."),
    _counter("rocketmq_timer_dequeue_total", "Messages whose wait has ended."),
    _gauge("rocketmq_timer_dequeue_latency_milliseconds", "By how much the next delivery is late; 0 when none is."),
    _gauge("rocketmq_storage_size_bytes", "Bytes of the commit log.", *_STORAGE),
    _gauge("rocketmq_storage_flush_behind_bytes", "Bytes that are not known to be on the disk.", *_STORAGE),
    _gauge("rocketmq_storage_dispatch_behind_bytes", "Bytes that are not in the index.", *_STORAGE),
    _gauge("rocketmq_storage_message_reserve_time_milliseconds", "Age of the oldest record; 0 for none.", *_STORAGE),
    _gauge("rocketmq_topic_number", "Topics, without those of the system."),
    _gauge("rocketmq_consumer_group_number", "Groups that have consumed."),
    # --- groups
    _counter("rmq_handled_total", "Messages finished by a handler that returned, or by a commit.", *_GROUP),
    _counter("rmq_failed_total", "Delivery attempts that failed.", *_GROUP),
    _counter("rmq_retried_total", "Failed attempts that are followed by another.", *_GROUP),
    _counter("rmq_dead_lettered_total", "Messages that became dead letters.", *_GROUP),
    _counter("rmq_skipped_total", "Messages that the group does not want: tags, filters, damage.", *_GROUP),
    _counter("rmq_lost_total", "Messages that retention removed before they were finished.", *_GROUP),
    Metric("rmq_handler_duration_seconds", Kind.HISTOGRAM, "Duration of calls, per message.", (*_GROUP, "outcome")),
    Metric("rmq_queue_wait_seconds", Kind.HISTOGRAM, "From the store time of a message to its call.", _GROUP),
    _gauge("rmq_call_age_seconds", "Age of the call that runs longest; 0 when none runs.", *_GROUP),
    _gauge("rmq_group_paused", "1 while a group takes nothing from a queue.", *_GROUP),
    _gauge("rmq_group_state", "1 for the state of a group: running, paused, no members, idle.", *_GROUP, "state"),
    _gauge("rmq_waiting_retries", "Failed messages whose next attempt is not due yet; they are in no lag.", "group"),
    _gauge("rmq_spare_members", "Members of a group that have no queue of a topic that they consume.", "group"),
    _gauge("rmq_queue_lag_messages", "Messages that a group has not committed; with --per-queue.", *_GROUP, "queue"),
    _gauge("rmq_queue_inflight_messages", "Messages taken and not finished; with --per-queue.", *_GROUP, "queue"),
    # --- workers
    _gauge("rmq_worker_up", "1 while a worker is ready.", "worker"),
    _gauge("rmq_worker_state", "1 for the state of a worker: starting, ready, draining.", "worker", "state"),
    _gauge("rmq_worker_beat_age_seconds", "Since the last sign of life; one is due every half second.", "worker"),
    _gauge("rmq_worker_message_age_seconds", "Age of the call that runs longest; 0 when none runs.", "worker"),
    _gauge("rmq_worker_inflight_messages", "Messages whose handler runs.", "worker"),
    _gauge("rmq_worker_resident_bytes", "Memory of the process.", "worker"),
    _counter("rmq_worker_restarts_total", "How often a worker was started again.", "worker"),
    _counter("rmq_worker_handled_total", "Messages that a worker of a cluster has handled; not of a store.", "worker"),
    _counter("rmq_worker_failed_total", "Failed attempts of a worker of a cluster; not of a store.", "worker"),
    _counter("rmq_restarts_total", "How often workers were started again, those of ended supervisors included."),
    # --- the store
    _gauge("rmq_store_open", "1 while a process has the store open."),
    _gauge("rmq_store_poisoned", "1 after a flush failed: nothing is stored any more."),
    _gauge("rmq_housekeeper_up", "1 while a process flushes, removes old files and delivers what is due."),
    _gauge("rmq_disk_full", "1 while appends are refused because the disk is too full."),
    _gauge("rmq_disk_used_ratio", "Part of the file system that is used, 0 to 1."),
    _gauge("rmq_build_info", "Always 1.", "version", "python"),
    _gauge("rmq_scrape_duration_seconds", "Time that it took to read all this."),
)
"""Every metric, in the order of the text."""

OF_CLUSTERS: Final = ("rmq_worker_handled_total", "rmq_worker_failed_total")
"""Metrics of workers whose messages are on a cluster: nobody else counts there. A store counts by group."""

PER_QUEUE: Final = ("rmq_queue_lag_messages", "rmq_queue_inflight_messages")
"""Metrics that are shown on demand: there can be 16,384 queues of groups."""

BARE_NAMES: Final = {
    "rocketmq_consumer_lag_latency_milliseconds": "rocketmq_consumer_lag_latency",
    "rocketmq_consumer_queueing_latency_milliseconds": "rocketmq_consumer_queueing_latency",
}
"""Names without a unit, as RocketMQ 5.1.0 to 5.1.3 shows them."""
