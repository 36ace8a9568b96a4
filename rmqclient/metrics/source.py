"""Source: what metrics are read from, again and again: a store, or the workers of this host for a cluster."""

from __future__ import annotations

import time
from pathlib import Path

from rmqclient.admin.workers import workers_of_cluster
from rmqclient.metrics.families import Family
from rmqclient.metrics.readings import USUAL, Retried, Shown, readings, readings_of_workers
from rmqclient.place import scheme_of, shown
from rmqclient.store.closing import Closing
from rmqclient.store.observe.sampler import Sampler

_DURATION = "rmq_scrape_duration_seconds"


class Source(Closing):
    """Reads one place, the directory of a store or the URL of a cluster; a context manager, for one thread."""

    def __init__(self, place: Path | str, shown: Shown = USUAL) -> None:
        self._place = str(place)
        self._sampler = None if scheme_of(place) else Sampler(place)
        self._shown = shown
        self._retried = Retried()

    def read(self) -> list[Family]:
        """Return the metrics as they are now. Raises as :meth:`Sampler.sample`, OSError, and InvalidURL for a URL."""
        begin = time.perf_counter()
        families = self._read()
        duration = next(family for family in families if family.metric.name == _DURATION)
        point = duration.points[0]
        duration.points[0] = point._replace(value=time.perf_counter() - begin)
        return families

    def _read(self) -> list[Family]:
        if self._sampler is not None:
            return readings(self._sampler.sample(), self._sampler.root, self._shown, self._retried)
        return readings_of_workers(workers_of_cluster(self._place).all(), shown(self._place), self._shown)

    def close(self) -> None:
        """Let go of the place."""
        if self._sampler is not None:
            self._sampler.close()
