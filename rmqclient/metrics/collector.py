"""Collector: the metrics of a store in the registry of an application's own ``/metrics``, by ``prometheus_client``."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqclient.errors import NotInstalled
from rmqclient.metrics.families import Kind
from rmqclient.metrics.readings import USUAL, Shown
from rmqclient.metrics.source import Source
from rmqclient.store.errors import QueueError
from rmqclient.store.native_threads import threading


class StoreCollector:
    """A custom collector of ``prometheus_client``: ``REGISTRY.register(StoreCollector("./store"))``.

    Exactly one process may show the metrics of a store: in a second one they would be counted twice. A store that
    cannot be read just now, such as one that nobody has opened yet, shows nothing. Safe for threads, because a server
    of ``prometheus_client`` answers each scrape in its own. Raises NotInstalled without ``prometheus_client``.
    """

    def __init__(self, place: Path | str, shown: Shown = USUAL) -> None:
        self._source = Source(place, shown)
        self._reading = threading.Lock()
        self._metric = _metric_class()

    def collect(self) -> Iterator[Any]:
        """Yield the families, each a ``prometheus_client.Metric``."""
        try:
            with self._reading:
                families = self._source.read()
        except (QueueError, OSError):
            return
        for family in families:
            name, kind = family.metric.name, family.metric.kind
            name = name.removesuffix("_total") if kind is Kind.COUNTER else name
            made = self._metric(name, family.metric.meaning, kind.value)
            for suffix, labels, value in family.points:
                made.add_sample(family.metric.name + suffix, labels, value)
            yield made

    def close(self) -> None:
        """Let go of the store; for a collector that is taken out of its registry."""
        self._source.close()

    def describe(self) -> list[Any]:
        """Return nothing: which series there are is known when the store is read."""
        return []


def collect(place: Path | str, shown: Shown = USUAL) -> Iterator[Any]:
    """Yield the metrics of a store, once, as families of ``prometheus_client``; as :class:`StoreCollector`."""
    collector = StoreCollector(place, shown)
    try:
        yield from collector.collect()
    finally:
        collector.close()


def _metric_class() -> Any:
    try:
        return importlib.import_module("prometheus_client").Metric
    except ImportError as error:
        raise NotInstalled("metrics in a registry need prometheus_client: pip install prometheus-client") from error
