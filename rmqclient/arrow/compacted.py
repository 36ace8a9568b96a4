"""Compacted: messages of a compact topic below the begin of its log, as record batches.

A queue of a compact topic always begins at its first offset: below the begin of the log, its compacted file
(:mod:`rmqclient.store.files.compacted_file`) covers all messages, without those that a later message with the same key
has replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from rmqclient.arrow.record_batches import loss_in_words, record_batch
from rmqclient.store import STOPPED, Collector, MessageQueue
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.files.compacted_file import CompactedFile, compacted_queues, open_compacted

_DAMAGED = "its record in the compacted file is damaged"
_NOT_COMPACTED = "it is neither in the log nor compacted"


class Compacted:
    """The compacted files of the store in ``root``; empty if that is None. For one thread."""

    def __init__(self, root: Path | None) -> None:
        self._root = root

    def queues(self) -> set[MessageQueue]:
        """Return the queues that have a compacted file."""
        return set() if self._root is None else set(compacted_queues(self._root))

    def read(
        self,
        queue: MessageQueue,
        offsets: range,
        collector: Collector,
        schema: pa.Schema,
        on_lost: Callable[[str], None],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range below the begin of the log.

        ``on_lost`` gets a sentence about messages that are damaged, or that no file covers.
        """

        def lose(start: int, stop: int, why: str) -> None:
            on_lost(loss_in_words(queue, range(start, stop), None, why))

        assert self._root is not None
        try:
            file = open_compacted(self._root, queue)
        except StoreCorrupt as error:
            lose(offsets.start, offsets.stop, str(error))
            return
        known_to = file.compacted_to if file is not None else offsets.start
        if file is not None:
            for content, queue_offset in _records(file, offsets, lose):
                at = 0
                while at < len(content):
                    at, found, _ = collector.add_pulled(
                        content, at, queue.topic.encode(), queue.queue_id, queue_offset, queue_offset + 1, False
                    )
                    if found == STOPPED["FULL"]:
                        yield record_batch(collector.columns, schema)
                    elif at < len(content):
                        lose(queue_offset, queue_offset + 1, _DAMAGED)
                        break
            if collector.columns.rows:
                yield record_batch(collector.columns, schema)
        if known_to < offsets.stop:
            lose(max(offsets.start, known_to), offsets.stop, _NOT_COMPACTED)


def _records(file: CompactedFile, offsets: range, lose: Callable[[int, int, str], None]) -> Iterator[tuple[bytes, int]]:
    """Yield record and queue offset of each message in a range."""
    following = offsets.start
    for _, entry, message in file.messages(file.first_at(offsets.start)):
        if entry is not None and entry.queue_offset >= offsets.stop:
            return
        if entry is not None and message is not None:
            yield message.record(), entry.queue_offset
            following = entry.queue_offset + 1
        else:
            at = following if entry is None else entry.queue_offset
            lose(at, at + 1, _DAMAGED)
