"""Store files: a store's directory, or its archive, and the messages in it as record batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa

from rmqclient.arrow.batches import EVERYTHING, BatchReader
from rmqclient.arrow.compacted import Compacted
from rmqclient.arrow.location import Location
from rmqclient.arrow.ranges import Ranges
from rmqclient.filters.tag import TagFilter
from rmqclient.store import MessageQueue
from rmqclient.store.bodies import DEFAULT_LIMIT
from rmqclient.store.inspect.view import View, offset_by_time
from rmqclient.store.settings.config_file import TopicConfig, read_topics
from rmqclient.store.settings.topic_table import queues_of


@dataclass(frozen=True)
class Reading:
    """How messages are read: see :class:`rmqclient.arrow.batches.BatchReader`."""

    on_lost: Callable[[str], None]
    tags: TagFilter = EVERYTHING
    rows: int = 10_000
    size: int = 4 << 20
    max_opened_body_bytes: int = DEFAULT_LIMIT
    null_unreadable: bool = False


class StoreFiles:
    """The files of a store that a view reads. For one thread.

    ``root`` is the directory of the store; None for an archive alone, which knows no settings and no compacted files.
    """

    def __init__(self, view: View, root: Path | None = None, identity: str | None = None) -> None:
        self.view = view
        self._root = root
        self._identity = identity
        self.compacted = Compacted(root)

    @classmethod
    def at(cls, location: Location) -> Self:
        """Open the files at a location. Raises as :func:`rmqclient.archive.view.open_view`."""
        return cls(location.open(), location.directory(), location.identity())

    def topics(self) -> list[str]:
        """Return the topics that have, or had, messages and were not removed, as a consumer sees them."""
        known = self._configs()
        return sorted({queue.topic for queue in self.view.queues() if queue.topic in known or not known})

    def queues(self, topics: Collection[str]) -> list[MessageQueue]:
        """Return the queues of these topics, also those without a message."""
        known = self._configs()
        made = {
            MessageQueue(topic, queue_id)
            for topic in topics
            if topic in known
            for queue_id in range(queues_of(known[topic]))
        }
        return sorted(made | {queue for queue in self.view.queues() if queue.topic in topics})

    def _configs(self) -> Mapping[str, TopicConfig]:
        return {} if self._root is None else read_topics(self._root)

    def identity(self) -> str | None:
        """Return the identity of the store; None for an archive alone, and for a store that a broker made."""
        return self._identity

    def ranges(self, queues: Iterable[MessageQueue]) -> Ranges:
        """Return the offsets that have messages now, by one look at the store. A compacted queue begins at 0."""
        found = self.view.ranges(queues)
        return found | {queue: range(found[queue].stop) for queue in self.compacted.queues() & found.keys()}

    def offset_by_time(self, queue: MessageQueue, known: range, timestamp_ms: int) -> int:
        """Search by bisection, by the store times in records."""
        if queue in self.compacted.queues():
            known = range(max(known.start, self.view.offsets(queue).start), known.stop)
        return offset_by_time(self.view, queue, known, timestamp_ms)

    def divided(self, queue: MessageQueue, wanted: range) -> tuple[range, range]:
        """Return the part of a range that is below the log, and the part that is in the log."""
        begin = min(max(wanted.start, self.view.offsets(queue).start), wanted.stop)
        return range(wanted.start, begin), range(begin, wanted.stop)

    def batches(
        self, schema: pa.Schema, wanted: Ranges, reading: Reading, log: tuple[int, int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of some ranges, queue by queue, or along a range of the commit log.

        ``schema`` has stored columns alone. Raises BodyUnreadable, NotInstalled, and what ``on_lost`` raises.
        """
        self.view.release()
        records = BatchReader(
            self.view,
            schema,
            rows=reading.rows,
            size=reading.size,
            tags=reading.tags,
            max_opened_body_bytes=reading.max_opened_body_bytes,
            null_unreadable=reading.null_unreadable,
            on_lost=reading.on_lost,
        )
        if log is not None:
            yield from records.read_log(*log, wanted)
            return
        compacted = self.compacted.queues()
        for queue, offsets in wanted.items():
            below, in_log = self.divided(queue, offsets) if queue in compacted else (range(0), offsets)
            if below:
                yield from self.compacted.read(queue, below, records.collector(), schema, reading.on_lost)
            yield from records.read_queue(queue, in_log.start, in_log.stop)
