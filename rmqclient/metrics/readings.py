"""Readings: the families of one sample. A series is there from the start, at 0, because rates and alerts need that."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from rmqclient.metrics.families import BARE_NAMES, METRICS, NODE_LABELS, OF_CLUSTERS, PER_QUEUE, Family, Metric
from rmqclient.metrics.totals import GroupTotals, by_group, by_topic
from rmqclient.names import RETRY_PREFIX, group_and_member, has_copies, is_of_application, is_system
from rmqclient.store import WorkerState, WorkerStatus
from rmqclient.store.observe import states
from rmqclient.store.observe.observation import Observation
from rmqclient.store.observe.sampler import HISTOGRAM_BOUNDS_S
from rmqclient.store.observe.summary import Group, groups_of, state_of_queues

_GROUP_STATES = ("running", "paused", "no members")
"""These are there from the start, any other one while it is the state."""
_WORKER_STATES = tuple(state for state in WorkerState if state is not WorkerState.FREE)


_OF_SERIES: Final = frozenset(label for metric in METRICS for label in metric.labels) | {"le"}
"""Labels that tell series of one metric apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What is shown of a store."""

    per_queue: bool = False
    """Also the metrics of :data:`~rmqclient.metrics.families.PER_QUEUE`."""
    bare_names: bool = False
    """Also the names of :data:`~rmqclient.metrics.families.BARE_NAMES`."""
    labels: tuple[tuple[str, str], ...] = ()
    """Added to every series, or in place of one of ``cluster``, ``node_type`` and ``node_id``."""

    def __post_init__(self) -> None:
        """Raises ValueError for labels that no scraper could read, or that a series has from us."""
        seen = set[str]()
        for name, _ in self.labels:
            if name.startswith("__") or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(
                    f"label {name!r}: a name is letters, digits and _, and begins with neither digit nor __"
                )
            if name in _OF_SERIES:
                raise ValueError(f"label {name!r}: series have this one with a value of their own; choose another name")
            if name in seen:
                raise ValueError(f"label {name!r} is given twice: a series has one value of it")
            seen.add(name)


USUAL: Final = Shown()


class Retried:
    """The attempts that another one follows, as a counter that falls only with the store's own. For one thread.

    They are the failed attempts without the dead letters. A dead letter has failed before it is counted as one, so a
    look between the two finds one too many: what was shown of each group and topic is remembered.
    """

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], tuple[int, int]] = {}

    def shown(self, group: str, topic: str, totals: GroupTotals) -> int:
        """Return what to show now: no less than before, unless the store has begun to count anew."""
        failed_before, shown_before = self._shown.get((group, topic), (0, 0))
        retried = max(0, totals.failed - totals.dead_lettered)
        if totals.failed >= failed_before:
            retried = max(retried, shown_before)
        self._shown[group, topic] = totals.failed, retried
        return retried


def readings(sample: Observation, root: Path, shown: Shown, retried: Retried) -> list[Family]:
    """Return the families of a sample of the store in ``root``; ``retried`` knows those before."""
    families = _empty()
    add = _Adding(families)
    _add_topics(add, sample)
    _add_groups(add, sample, retried)
    _add_handling(families, sample)
    _add_timer_and_disk(add, sample)
    _add_workers(add, sample.workers)
    _add_build(add)
    if shown.per_queue:
        for row in sample.group_queues:
            labels = row.group, row.queue.topic, str(row.queue.queue_id)
            add("rmq_queue_lag_messages", row.lag, *labels)
            add("rmq_queue_inflight_messages", row.in_flight, *labels)
    hidden = OF_CLUSTERS if shown.per_queue else (*OF_CLUSTERS, *PER_QUEUE)
    found = [family for name, family in families.items() if name not in hidden]
    if shown.bare_names:
        found += [_renamed(families[name], bare) for name, bare in BARE_NAMES.items()]
    return _labelled(found, root.resolve().name, shown)


def readings_of_workers(workers: Iterable[WorkerStatus], place: str, shown: Shown) -> list[Family]:
    """Return the families of workers whose messages are on a cluster: its brokers have exporters of their own."""
    families = _empty()
    add = _Adding(families)
    for status, name in _add_workers(add, workers):
        add("rmq_worker_handled_total", status.handled_before + status.handled, name)
        add("rmq_worker_failed_total", status.failed_before + status.failed, name)
    _add_build(add)
    return _labelled([family for family in families.values() if family.points], place, shown)


def _empty() -> dict[str, Family]:
    return {metric.name: Family(metric) for metric in METRICS}


class _Adding:
    """Adds a series to the family of a name."""

    def __init__(self, families: dict[str, Family]) -> None:
        self._families = families

    def __call__(self, name: str, value: float, *labels: str) -> None:
        self._families[name].add(value, *labels)


_Add = Callable[..., None]


def _add_topics(add: _Add, sample: Observation) -> None:
    topics = by_topic(sample)
    for topic, totals in topics.items():
        if not has_copies(topic):
            add("rocketmq_messages_in_total", totals.messages_in, topic, "normal", _bool(is_system(topic)))
            add("rocketmq_throughput_in_total", totals.bytes_in, topic, "normal", _bool(is_system(topic)))
    add("rocketmq_topic_number", sum(map(is_of_application, topics)))


def _add_groups(add: _Add, sample: Observation, retried: Retried) -> None:
    ages: dict[tuple[str, str], float] = {}
    for call in sample.calls:
        key = group_and_member(call.group)[0], call.queue.topic
        ages[key] = max(call.age_s, ages.get(key, 0.0))
    groups = {each.group: each for each in groups_of(sample)}
    for (group, topic), totals in by_group(sample).items():
        _add_rocketmq_group(add, sample, group, topic, totals)
        _add_group(add, group, topic, totals)
        add("rmq_retried_total", retried.shown(group, topic, totals), group, topic)
        add("rmq_call_age_seconds", ages.get((group, topic), 0.0), group, topic)
        state = _state(groups[group], topic)
        for each in dict.fromkeys((*_GROUP_STATES, state)):
            add("rmq_group_state", int(each == state), group, topic, each)
    for name, each_group in groups.items():
        add("rocketmq_consumer_connections", len(each_group.members), name, "python", "push")
        add("rmq_waiting_retries", each_group.waiting or 0, name)
        add("rmq_spare_members", len(each_group.spare), name)
    add("rocketmq_consumer_group_number", sum(bool(each.queues) for each in groups.values()))


def _state(group: Group, topic: str) -> str:
    """Return the state of a group on one topic, without numbers: that of the group if it hangs, or has no members."""
    queues = [each for each in group.queues if each.queue.topic == topic]
    own = state_of_queues(queues, members=len(group.members), waiting=group.waiting or 0)
    return states.kind(group.state if group.state.startswith("hung") else own)


def _add_rocketmq_group(add: _Add, sample: Observation, group: str, topic: str, totals: GroupTotals) -> None:
    system = _bool(is_system(topic))
    if not has_copies(topic):
        add("rocketmq_messages_out_total", totals.delivered, topic, group, system)
        add("rocketmq_throughput_out_total", totals.bytes_out, topic, group, system)
    add("rocketmq_send_to_dlq_messages_total", totals.dead_lettered, group, topic, system)
    labels = group, topic, _bool(topic.startswith(RETRY_PREFIX)), system
    add("rocketmq_consumer_lag_messages", totals.lag, *labels)
    add("rocketmq_consumer_lag_latency_milliseconds", _age_ms(sample, totals.oldest_stored_ms), *labels)
    add("rocketmq_consumer_inflight_messages", totals.in_flight, *labels)
    add("rocketmq_consumer_ready_messages", totals.ready, *labels)
    add("rocketmq_consumer_queueing_latency_milliseconds", _age_ms(sample, totals.next_stored_ms), *labels)


def _add_group(add: _Add, group: str, topic: str, totals: GroupTotals) -> None:
    add("rmq_handled_total", totals.handled, group, topic)
    add("rmq_failed_total", totals.failed, group, topic)
    add("rmq_dead_lettered_total", totals.dead_lettered, group, topic)
    add("rmq_skipped_total", totals.skipped, group, topic)
    add("rmq_lost_total", totals.lost, group, topic)
    add("rmq_group_paused", int(totals.paused > 0), group, topic)


def _add_handling(families: dict[str, Family], sample: Observation) -> None:
    durations, waits = families["rmq_handler_duration_seconds"], families["rmq_queue_wait_seconds"]
    for each in sample.handling:
        for outcome, histogram in (("handled", each.handled), ("failed", each.failed)):
            labels = each.group, each.topic, outcome
            durations.add_histogram(HISTOGRAM_BOUNDS_S, histogram.counts, histogram.seconds, *labels)
        waits.add_histogram(HISTOGRAM_BOUNDS_S, each.waited.counts, each.waited.seconds, each.group, each.topic)


def _add_timer_and_disk(add: _Add, sample: Observation) -> None:
    timer, disk, storage = sample.timer, sample.disk, ("local", "disk")
    add("rocketmq_timing_messages", timer.waiting)
    add("rocketmq_timer_enqueue_total", timer.enqueued)
    add("rocketmq_timer_dequeue_total", timer.enqueued - timer.waiting)
    add("rocketmq_timer_dequeue_latency_milliseconds", _age_ms(sample, timer.next_due_ms if timer.waiting else None))
    add("rocketmq_storage_size_bytes", disk.published_to - disk.min_offset, *storage)
    add("rocketmq_storage_flush_behind_bytes", max(0, disk.published_to - disk.flushed_to), *storage)
    add("rocketmq_storage_dispatch_behind_bytes", max(0, disk.published_to - disk.indexed_to), *storage)
    add("rocketmq_storage_message_reserve_time_milliseconds", _age_ms(sample, disk.oldest_stored_ms), *storage)
    add("rmq_store_open", int(sample.is_open))
    add("rmq_store_poisoned", int(disk.poisoned != 0))
    add("rmq_housekeeper_up", int(sample.has_housekeeper))
    add("rmq_disk_full", int(disk.is_full))
    add("rmq_disk_used_ratio", disk.used_ratio)
    add("rmq_restarts_total", sample.worker_restarts)


def _add_workers(add: _Add, workers: Iterable[WorkerStatus]) -> list[tuple[WorkerStatus, str]]:
    """Add what every worker tells; return each with the name of its series."""
    named: list[tuple[WorkerStatus, str]] = []
    seen: set[str] = set()
    for status in workers:
        name = status.name or f"slot-{status.slot}"
        name = f"{name}@{status.supervisor_pid}" if name in seen else name  # two supervisors may use one name
        seen.add(name)
        named.append((status, name))
        add("rmq_worker_up", int(status.state in (WorkerState.READY, WorkerState.OVERDUE)), name)
        for state in _WORKER_STATES:
            add("rmq_worker_state", int(status.state is state), name, state.name.lower())
        add("rmq_worker_beat_age_seconds", (status.beat_age_ms or 0.0) / 1000, name)
        add("rmq_worker_message_age_seconds", (status.message_age_ms or 0.0) / 1000, name)
        add("rmq_worker_inflight_messages", status.in_flight, name)
        add("rmq_worker_restarts_total", status.restarts, name)
        if (resident := status.resident_bytes) is not None:
            add("rmq_worker_resident_bytes", resident, name)
    return named


def _add_build(add: _Add) -> None:
    add("rmq_build_info", 1, _version(), platform.python_version())
    add("rmq_scrape_duration_seconds", 0.0)


def _age_ms(sample: Observation, at_ms: int | None) -> int:
    return 0 if at_ms is None else max(0, sample.wall_ms - at_ms)


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _labelled(families: list[Family], node: str, shown: Shown) -> list[Family]:
    labels = {**dict(zip(NODE_LABELS, ("rmq", "broker", node), strict=True)), **dict(shown.labels)}
    return [
        Family(each.metric, [point._replace(labels={**labels, **point.labels}) for point in each.points])
        for each in families
    ]


def _renamed(family: Family, name: str) -> Family:
    metric = family.metric
    return Family(Metric(name, metric.kind, metric.meaning, metric.labels), family.points)


def _version() -> str:
    try:
        return version("rmqclient")
    except PackageNotFoundError:
        return "unknown"
