"""Batch limits: how large a micro-batch may be, and until when too small a one waits for more messages."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from rmqclient.arrow.ranges import Offsets
from rmqclient.spark.scan import offsets
from rmqclient.spark.scan.place import Place
from rmqclient.spark.scan.read_options import ReadOptions
from rmqclient.store import MessageQueue


class BatchLimits:
    """The limits of one query, by its options, and the time of its last batch."""

    def __init__(self, options: ReadOptions) -> None:
        self._most = options.max_offsets_per_trigger
        self._most_bytes = options.max_bytes_per_trigger
        self._least = options.min_offsets_per_trigger
        self._delay_ms = options.max_trigger_delay_ms
        self._last_batch_at = -math.inf  # as in Kafka's source, the first batch does not wait

    def for_spark(self) -> ReadLimit:
        """Return one limit for Spark, which knows only one at a time; here all of them apply."""
        if self._most:
            return ReadMaxRows(self._most)
        if self._most_bytes:
            return ReadMaxBytes(self._most_bytes)
        return ReadMaxRows((1 << 63) - 1) if self._least else ReadAllAvailable()

    def note_batch(self) -> None:
        """Note that a batch begins now."""
        self._last_batch_at = time.monotonic()

    def are_too_few(self, place: Place, begin: Offsets, latest: Offsets) -> bool:
        """Return whether there are too few messages for a micro-batch and the delay has not passed."""
        waited_ms = (time.monotonic() - self._last_batch_at) * 1000
        if self._least is None or waited_ms >= self._delay_ms:
            return False
        ranges = offsets.between(begin, latest)
        if offsets.count(ranges.values()) >= self._least:
            return False
        return sum(place.mean_messages(queue, wanted) * len(wanted) for queue, wanted in ranges.items()) < self._least

    def apply(self, place: Place, begin: Offsets, latest: Offsets) -> Offsets:
        """Return the offsets at which a batch from ``begin`` ends, at most ``latest``."""
        if self._most is not None:
            latest = _limited_by(place.mean_messages, begin, offsets.limited(begin, latest, self._most), self._most)
        if self._most_bytes is not None:
            latest = _limited_by(place.mean_size, begin, latest, self._most_bytes)
        return latest


def _limited_by(mean: Callable[[MessageQueue, range], float], begin: Offsets, latest: Offsets, most: int) -> Offsets:
    """Return the offsets at which a batch of at most ``most`` ends, by taking fewer records until it fits.

    ``mean`` is what a record in a range of a queue counts for, such as its bytes, from samples: this is an estimate. A
    batch has at least one record.
    """
    while True:
        ranges = offsets.between(begin, latest)
        records = offsets.count(ranges.values())
        taken = sum(mean(queue, wanted) * len(wanted) for queue, wanted in ranges.items())
        if records <= 1 or taken <= most:
            return latest
        latest = offsets.limited(begin, latest, max(1, min(records - 1, int(records * most / taken))))
